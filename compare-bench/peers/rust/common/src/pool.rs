//! What each lock needs one of for as long as it is wanted or held, such as a connection.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Result;

/// Spare ones are used again, the last one first. With all in use, the next lock waits for one, in order.
#[derive(Debug)]
pub struct Pool<T> {
    spare: Arc<Mutex<Vec<T>>>,
    places: Arc<Semaphore>,
}

/// Goes with what was taken, and back with it. Without it, what was taken is lost, and its place is free.
pub type Place = OwnedSemaphorePermit;

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self { spare: Arc::clone(&self.spare), places: Arc::clone(&self.places) }
    }
}

impl<T> Pool<T> {
    /// An empty one, which makes so many at most.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { spare: Arc::default(), places: Arc::new(Semaphore::new(most)) }
    }

    /// A spare one, or a new one.
    pub async fn take(&self, make: impl Future<Output = Result<T>>) -> Result<(T, Place)> {
        let place = Arc::clone(&self.places).acquire_owned().await?;
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let one = match spare {
            Some(one) => one,
            None => make.await?,
        };
        Ok((one, place))
    }

    /// It is spare again.
    pub fn put(&self, one: T, place: Place) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(one);
        drop(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_spare_is_used_again_and_the_number_is_limited() {
        let pool = Pool::new(2);
        let (one, place) = pool.take(async { Ok(1) }).await.unwrap();
        let (two, _kept) = pool.take(async { Ok(2) }).await.unwrap();
        assert_eq!((one, two), (1, 2));
        let mut third = Box::pin(pool.take(async { Ok(3) }));
        tokio::select! {
            biased;
            _ = &mut third => panic!("there are more than two"),
            () = async {} => {}
        }
        pool.put(one, place);
        assert_eq!(third.await.unwrap().0, 1);
    }
}
