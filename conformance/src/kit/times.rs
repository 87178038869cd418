//! How long each test took, for whoever asks for it by the variable `LOCKWELL_TIMES`: the path of a file.
//!
//! libtest-mimic reports the ends of tests only.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use crate::lateness;
use lockwell_core::Moment;

/// The file, with a line for each test that has ended: its seconds, how many milliseconds the machine was
/// late meanwhile, and its name.
#[derive(Clone)]
pub(super) struct Times(Option<Arc<File>>);

impl Times {
    pub(super) fn open() -> Self {
        let file = std::env::var_os("LOCKWELL_TIMES").map(|path| {
            File::create(&path).unwrap_or_else(|error| panic!("{}: {error}", path.to_string_lossy()))
        });
        Self(file.map(Arc::new))
    }

    pub(super) fn of(&self, name: &str) -> Timed {
        Timed { times: self.clone(), name: name.to_owned(), began: None }
    }
}

/// A test. Its line is written when this is dropped, also by a panic.
pub(super) struct Timed {
    times: Times,
    name: String,
    began: Option<(Instant, Moment)>,
}

impl Timed {
    #[must_use]
    pub(super) fn begin(mut self) -> Self {
        self.began = Some((Instant::now(), Moment::now()));
        self
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let (Some(file), Some((began, moment))) = (&self.times.0, self.began) else { return };
        let (seconds, late) = (began.elapsed().as_secs_f64(), lateness::since(moment).as_millis());
        // In one call, so that the lines of two tests do not mix.
        let line = format!("{seconds:.3} {late} {}\n", self.name);
        if let Err(error) = (&**file).write_all(line.as_bytes()) {
            eprintln!("the time of {}: {error}", self.name);
        }
    }
}
