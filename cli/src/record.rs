//! `lockwell record`: what the last holder has written.

use std::io::{self, ErrorKind, Write as _};

use lockwell::Registry;

use crate::args::RecordArgs;
use crate::connect::{Address, Purpose};
use crate::exit::Failure;
use crate::json::{self, RecordReport};
use crate::patience::Patience;
use crate::say::Voice;

/// There is no record.
const NONE: u8 = 1;

pub(crate) async fn record(registry: &Registry, args: &RecordArgs) -> Result<u8, Failure> {
    let connection = Address::of(&args.server)?
        .connect(registry, Purpose::Reading, &mut Patience::none(Voice::Usual))
        .await?;
    let record = connection.locks()?.record(&args.name).await?;
    if args.json {
        json::print(&json::pretty(&RecordReport::new(&args.name, record.as_ref()))?)?;
    } else if let Some(record) = &record {
        let mut out = io::stdout().lock();
        match out.write_all(&record.value).and_then(|()| out.flush()) {
            // The reader has enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => (),
            written => written?,
        }
    }
    Ok(if record.is_some() { 0 } else { NONE })
}
