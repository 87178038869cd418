//! The plots of the report: which figures are drawn, and the legend beside them.

use maud::{Markup, PreEscaped, html};

use crate::error::Result;
use crate::html::plot::{Axis, Scale, Series, color, draw};
use crate::measure::stats::{Buckets, as_float};
use crate::record::{Measurement, Report};
use crate::view::{Group, Question, show};

/// So far the percentile curves go: further, single samples decide.
const LAST_NINE: f64 = 0.9999;

const TIME: Axis = Axis { label: "time", scale: Scale::Log, shown: show::time };
const RATE: Axis = Axis { label: "acquisitions a second", scale: Scale::Log, shown: show::number };

/// A plot with its legend, or nothing if there is nothing to draw.
pub(super) fn figure(title: &str, x: &Axis, y: &Axis, series: &[Series]) -> Result<Option<Markup>> {
    let Some(svg) = draw(title, x, y, series)? else { return Ok(None) };
    let names = series.iter().filter(|series| !series.is_dashed);
    let dashed = series.iter().any(|series| series.is_dashed);
    Ok(Some(html! {
        figure {
            figcaption { (title) }
            ul.legend {
                @for series in names {
                    li { i style={ "background:" (color(series.color)) } {} (series.name) }
                }
                @if dashed { li { "dashed: raw statements on the same server" } }
            }
            div.wide { (PreEscaped(svg)) }
        }
    }))
}

/// A backend has one colour in all plots. Of those that share one, few reports have both.
pub(super) fn color_of(backend: &str) -> usize {
    const ORDER: [&str; 8] =
        ["redis", "zookeeper", "postgres", "redlock", "mariadb", "sqlite", "memory", "zookeeper3"];
    const OTHERS: [(&str, usize); 6] = [
        ("mysql", 4),
        ("valkey", 5),
        ("sentinel", 6),
        ("redlock3", 7),
        ("cluster", 2),
        ("zookeeper3-leader", 3),
    ];
    let other = || OTHERS.iter().find(|(name, _)| *name == backend).map(|(_, color)| *color);
    ORDER.iter().position(|name| *name == backend).or_else(other).unwrap_or(backend.len())
}

/// The percentile curve: shares of the latencies below one, and the highest latency among that share in microseconds.
fn curve(buckets: &Buckets) -> Vec<(f64, f64)> {
    let all = as_float(buckets.counts.iter().sum::<u64>().max(1));
    let mut below = 0;
    let pairs = buckets.up_to_ns.iter().zip(&buckets.counts);
    let points = pairs.map(|(up_to, count)| {
        below += count;
        // Half a sample below, so that the highest has a place, too.
        ((as_float(below) - 0.5) / all, as_float(*up_to) / 1000.0)
    });
    points.filter(|(share, _)| *share <= LAST_NINE).collect()
}

/// Latency of a lock that nobody else wants, one plot for each run.
pub(crate) fn percentiles(runs: &[Report]) -> Result<Vec<Markup>> {
    let x = Axis { label: "percentile", scale: Scale::Nines, shown: percent };
    let mut figures = Vec::new();
    for run in runs {
        let results = run.results.iter().filter(|result| result.workload == "uncontended");
        let series: Vec<_> = results
            .flat_map(|result| {
                let line = |is_dashed, buckets| Series {
                    name: result.backend.clone(),
                    color: color_of(&result.backend),
                    is_dashed,
                    has_marks: false,
                    points: curve(buckets),
                    band: Vec::new(),
                };
                [line(false, &result.latency_us.histogram), line(true, &result.floor_latency_us.histogram)]
            })
            .collect();
        let title = format!("Acquire and release of a free lock ({})", show::conditions(&run.conditions));
        figures.extend(figure(&title, &x, &TIME, &series)?);
    }
    Ok(figures)
}

fn percent(share: f64) -> String {
    // No digits that the axis has no place for.
    let text = format!("{:.3}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Rates over the number of tasks, with the interval as a band.
pub(crate) fn throughput(question: &Question) -> Result<Vec<Markup>> {
    let x = Axis { label: "tasks, a lock each", scale: Scale::Log, shown: |tasks| format!("{tasks:.0}") };
    over(
        question,
        &x,
        &RATE,
        "Acquisitions over the number of tasks",
        |group| as_size(group.parties),
        |group| group.parties_are == "tasks",
    )
}

/// Latency over the rate at which requests arrive.
pub(crate) fn load(question: &Question) -> Result<Vec<Markup>> {
    let x = Axis { label: "arrivals a second", scale: Scale::Log, shown: show::number };
    let title = "Acquire and release over the rate of arrivals";
    over(question, &x, &TIME, title, |group| as_size(group.parties), |_| true)
}

/// From a release to the next grant over the time that the lock is held.
pub(crate) fn hand_over(question: &Question) -> Result<Vec<Markup>> {
    let x = Axis { label: "hold time", scale: Scale::Linear, shown: |ms| format!("{ms:.0} ms") };
    let mut parties: Vec<_> = question.groups.iter().map(|group| group.parties).collect();
    parties.sort_unstable();
    parties.dedup();
    let mut figures = Vec::new();
    for parties in parties {
        let title = format!("From a release to the next grant over the hold time, {parties} processes");
        let at = |group: &Group| as_float(group.hold_us) / 1000.0;
        figures.extend(over(question, &x, &TIME, &title, at, |group| group.parties == parties)?);
    }
    Ok(figures)
}

/// Latency over the delay of the network: the slope is the number of round trips.
pub(crate) fn delay(question: &Question) -> Result<Vec<Markup>> {
    let mut delays: Vec<_> = question.groups.iter().map(|group| group.conditions.delay_us).collect();
    delays.dedup();
    if delays.len() < 2 {
        return Ok(Vec::new());
    }
    let x = Axis { label: "delay each way", scale: Scale::Linear, shown: |ms| format!("{ms:.0} ms") };
    let y = Axis { label: "time", scale: Scale::Linear, shown: show::time };
    let at = |group: &Group| as_float(group.conditions.delay_us) / 1000.0;
    let title = "Acquire and release over the delay of the network";
    let same = |group: &Group| {
        let first = question.groups.first();
        first.is_some_and(|first| first.conditions.durability == group.conditions.durability)
    };
    over(question, &x, &y, title, at, same)
}

/// Our locks without options, over something that the groups differ in; one plot for each of the other conditions.
fn over(
    question: &Question,
    x: &Axis,
    y: &Axis,
    title: &str,
    at: impl Fn(&Group) -> f64,
    wanted: impl Fn(&Group) -> bool,
) -> Result<Vec<Markup>> {
    let is_delay = x.label.starts_with("delay");
    let mut conditions: Vec<_> = question.groups.iter().map(|group| &group.conditions).collect();
    conditions.dedup();
    if is_delay {
        conditions.truncate(1);
    }
    let mut figures = Vec::new();
    for conditions in conditions {
        let mut series: Vec<Series> = Vec::new();
        let groups = question.groups.iter().filter(|group| is_delay || group.conditions == *conditions);
        for group in groups.filter(|group| wanted(group)) {
            for line in group.lines.iter().filter(|line| !line.is_peer && line.who == line.backend) {
                let number = series.iter().position(|series| series.name == line.who).unwrap_or_else(|| {
                    let color = color_of(&line.who);
                    series.push(Series::of_marks(line.who.clone(), color));
                    series.len() - 1
                });
                let at = at(group);
                series[number].points.push((at, line.median));
                series[number].band.extend(line.value.map(|value| (at, value.low, value.high)));
            }
        }
        series.sort_by(|one, other| one.name.cmp(&other.name));
        let title =
            if is_delay { title.to_owned() } else { format!("{title} ({})", show::conditions(conditions)) };
        figures.extend(figure(&title, x, y, &series)?);
    }
    Ok(figures)
}

/// Requests that the server received for each grant, over the number of waiters: tasks of one process, and processes.
pub(crate) fn herd(results: &[&Measurement]) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    for (workload, label) in [("crowd", "tasks that want one lock"), ("herd", "processes that want one lock")]
    {
        let x = Axis { label, scale: Scale::Log, shown: |parties| format!("{parties:.0}") };
        let y = Axis { label: "requests for each grant", scale: Scale::Log, shown: show::number };
        let mut series: Vec<Series> = Vec::new();
        let mut add = |name: String, parties: usize, each: Option<f64>| {
            let Some(each) = each else { return };
            let color = series.len();
            let number = series.iter().position(|series| series.name == name).unwrap_or_else(|| {
                series.push(Series::of_marks(name, color));
                series.len() - 1
            });
            series[number].points.push((as_size(parties), each));
        };
        for result in results.iter().filter(|result| result.workload == workload) {
            let option = result.option.as_ref().map_or(String::new(), |option| format!(", {option}"));
            add(format!("{}{option}", result.backend), result.parties, result.requests_each);
            for peer in &result.peers {
                add(format!("{} on {}", peer.name, result.backend), result.parties, peer.requests_each);
            }
        }
        let title = format!("Requests that the servers received for each grant, over the number of {label}");
        figures.extend(figure(&title, &x, &y, &series)?);
    }
    Ok(figures)
}

pub(super) fn as_size(number: usize) -> f64 {
    as_float(u64::try_from(number).unwrap_or(u64::MAX))
}
