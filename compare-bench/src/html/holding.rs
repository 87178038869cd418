//! The plots of what holding costs.

use maud::Markup;

use crate::error::Result;
use crate::html::figures::{as_size, color_of, drawn, figure};
use crate::html::plot::{Axis, Scale, Series};
use crate::record::{Holding, Report};
use crate::view::family::family;
use crate::view::{Setting, by_setting, show};

/// Requests and time of processors over the number of locks that are held, for each run.
pub(crate) fn holding(runs: &[Report]) -> Result<Vec<Markup>> {
    let x = Axis { label: "locks held", scale: Scale::Log, shown: |locks| format!("{locks:.0}") };
    let rate = Axis { label: "requests in a second", scale: Scale::Log, shown: show::number };
    let cpu = Axis { label: "time of processors in a second", scale: Scale::Log, shown: show::time };
    let memory = Axis { label: "memory for the locks, in KiB", scale: Scale::Log, shown: show::number };
    let mut figures = Vec::new();
    for run in &by_setting(runs) {
        let on = show::conditions(&run.conditions);
        let mut add = |title: &str, y: &Axis, value: fn(&Holding) -> Option<f64>| -> Result<()> {
            let title = format!("{title} ({on})");
            figures.extend(figure(&title, Some(&Setting::of(run)), &x, y, &over_locks(run, value))?);
            Ok(())
        };
        add("Requests that the servers receive", &rate, |holding| holding.requests_per_second)?;
        add("Time of processors of the client", &cpu, |holding| Some(holding.client.cpu_us))?;
        add("Time of processors of the servers", &cpu, |holding| Some(holding.server?.cpu_us))?;
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 KiB")]
        add("Memory of the client", &memory, |holding| Some(holding.client.grown_kib as f64))?;
    }
    Ok(figures)
}

fn over_locks(run: &Report, value: fn(&Holding) -> Option<f64>) -> Vec<Series> {
    let shown = drawn(run.results.iter().map(|result| &*result.backend));
    let mut all: Vec<Series> = Vec::new();
    for result in run.results.iter().filter(|result| shown.contains(&&*result.backend)) {
        let Some((holding, value)) = result.holding.as_ref().and_then(|it| Some((it, value(it)?))) else {
            continue;
        };
        let name = family(&result.backend);
        let number = all.iter().position(|series| series.name == name).unwrap_or_else(|| {
            all.push(Series::of_marks(name.to_owned(), color_of(&result.backend)));
            all.len() - 1
        });
        all[number].points.push((as_size(holding.locks), value));
    }
    all
}
