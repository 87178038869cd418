//! Delta debugging: which of many faults suffice.

/// The fewest of `number` faults that it finds with which `fails` says yes, by leaving out halves, quarters
/// and so on. It asks `most` times at most. All together are known to fail.
pub(crate) async fn shrink(
    number: usize,
    most: usize,
    mut fails: impl AsyncFnMut(&[usize]) -> bool,
) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..number).collect();
    let (mut parts, mut asked) = (2, 0);
    while !kept.is_empty() {
        let size = kept.len().div_ceil(parts);
        let mut smaller = None;
        for part in kept.chunks(size) {
            if asked == most {
                return kept;
            }
            asked += 1;
            let rest: Vec<usize> = kept.iter().copied().filter(|one| !part.contains(one)).collect();
            if fails(&rest).await {
                smaller = Some(rest);
                break;
            }
        }
        match smaller {
            Some(rest) => {
                kept = rest;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(kept.len()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_suffices_is_found() {
        for wanted in [&[3][..], &[0, 7], &[2, 5, 9], &[]] {
            let kept = shrink(10, 1000, async |some| wanted.iter().all(|one| some.contains(one))).await;
            assert_eq!(kept, wanted);
        }
    }

    #[tokio::test]
    async fn it_stops_asking() {
        let mut asked = 0;
        let kept = shrink(64, 5, async |some: &[usize]| {
            asked += 1;
            some.contains(&63)
        })
        .await;
        assert_eq!(asked, 5);
        assert!(kept.contains(&63) && kept.len() < 64, "{kept:?}");
    }
}
