//! The plots of the report: which figures are drawn, and the legend beside them.

use maud::{Markup, PreEscaped, html};

use crate::error::Result;
use crate::html::plot::{Axis, Scale, Series, color, draw, is_second};
use crate::measure::stats::{Buckets, as_float};
use crate::record::{Conditions, Report};
use crate::view::line::{Fairness, Line};
use crate::view::{Group, Question, by_conditions, distinct, show};

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
                    li { i.second[is_second(series.color)] style={ "background:" (color(series.color)) } {} (series.name) }
                }
                @if dashed { li { "dashed: raw statements on the same server" } }
            }
            div.wide { (PreEscaped(svg)) }
        }
    }))
}

/// A backend has one look in all plots. Those of one kind share a colour, and one of them is drawn in the
/// second way.
pub(super) fn color_of(backend: &str) -> usize {
    const ORDER: [&str; 8] =
        ["redis", "zookeeper", "postgres", "redlock", "mariadb", "sqlite", "memory", "zookeeper3"];
    const OTHERS: [(&str, &str); 6] = [
        ("valkey", "redis"),
        ("sentinel", "memory"),
        ("cluster", "sqlite"),
        ("redlock3", "redlock"),
        ("mysql", "mariadb"),
        ("zookeeper3-leader", "zookeeper3"),
    ];
    let place = |name: &str| ORDER.iter().position(|one| *one == name);
    let other = OTHERS.iter().find(|(name, _)| *name == backend);
    let second = || other.and_then(|(_, like)| place(like)).map(|place| place + ORDER.len());
    place(backend).or_else(second).unwrap_or(ORDER.len() + 1)
}

/// The percentile curve: shares of the latencies below one, and the highest latency among that share in
/// microseconds.
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

/// Latency of a lock that nobody else wants. For all runs under the same conditions a plot of all locks that
/// several processes can share, then one of each kind with the raw statements.
pub(crate) fn percentiles(runs: &[Report]) -> Result<Vec<Markup>> {
    let x = Axis { label: "percentile", scale: Scale::Nines, shown: percent };
    let mut figures = Vec::new();
    for run in &by_conditions(runs) {
        let results = || run.results.iter().filter(|result| result.workload == "uncontended");
        let mut draw = |of: &str, with_raw: bool, wanted: &dyn Fn(&str) -> bool| -> Result<()> {
            let series: Vec<_> = results()
                .filter(|result| wanted(&result.backend))
                .flat_map(|result| {
                    let line = |is_dashed, buckets| Series {
                        name: result.backend.clone(),
                        color: color_of(&result.backend),
                        is_dashed,
                        has_marks: false,
                        points: curve(buckets),
                        band: Vec::new(),
                    };
                    let raw = with_raw.then(|| line(true, &result.floor_latency_us.histogram));
                    std::iter::once(line(false, &result.latency_us.histogram)).chain(raw)
                })
                .collect();
            let title =
                format!("Acquire and release of a free lock{of} ({})", show::conditions(&run.conditions));
            figures.extend(figure(&title, &x, &TIME, &series)?);
            Ok(())
        };
        let mut kinds: Vec<&str> = results().map(|result| kind(&result.backend)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.len() > 1 {
            draw("", false, &|backend| kind(backend) != ONE_PROCESS)?;
        }
        for one in kinds {
            draw(&format!(", {one}"), true, &|backend| kind(backend) == one)?;
        }
    }
    Ok(figures)
}

const ONE_PROCESS: &str = "within one process";

/// Backends of one kind share a plot with the raw statements.
fn kind(backend: &str) -> &str {
    match backend.split('-').next().unwrap_or(backend) {
        "memory" => ONE_PROCESS,
        "sqlite" | "postgres" | "mariadb" | "mysql" => "SQL",
        "redis" | "valkey" | "sentinel" | "cluster" => "Redis",
        "redlock" | "redlock3" => "Redlock",
        "zookeeper" | "zookeeper3" => "ZooKeeper",
        other => other,
    }
}

fn percent(share: f64) -> String {
    // No digits that the axis has no place for.
    let text = format!("{:.3}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

const PARTIES: fn(f64) -> String = |parties| format!("{parties:.0}");

/// Rates over the number of tasks and of processes, with the interval as a band.
pub(crate) fn throughput(question: &Question) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    for (parties_are, label) in [("tasks", "tasks, a lock each"), ("processes", "processes, a lock each")] {
        let x = Axis { label, scale: Scale::Log, shown: PARTIES };
        let title = format!("Acquisitions over the number of {parties_are}");
        let at = |group: &Group| as_size(group.parties);
        figures.extend(over(question, &x, &RATE, &title, at, |group| group.parties_are == parties_are)?);
    }
    Ok(figures)
}

/// Latency over the rate at which requests arrive.
pub(crate) fn load(question: &Question) -> Result<Vec<Markup>> {
    let x = Axis { label: "arrivals a second", scale: Scale::Log, shown: show::number };
    let title = "Acquire and release over the rate of arrivals";
    over(question, &x, &TIME, title, |group| as_size(group.parties), |_| true)
}

/// From a release to the next grant over the time that the lock is held; fairness over the number of
/// processes.
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
    let x = Axis { label: "processes that want one lock", scale: Scale::Log, shown: PARTIES };
    let jain = Axis { label: "Jain's index", scale: Scale::Linear, shown: |jain| format!("{jain:.2}") };
    let wait = Axis { label: "longest wait", ..TIME };
    figures.extend(fairness(
        question,
        &x,
        &jain,
        "Fairness: 1 if all processes got the lock equally often",
        |it| it.jain,
    )?);
    figures.extend(fairness(
        question,
        &x,
        &wait,
        "Starvation: the longest time that a process waited",
        |it| it.longest_wait_us,
    )?);
    Ok(figures)
}

/// Over the number of processes that do not hold the lock on purpose.
fn fairness(
    question: &Question,
    x: &Axis,
    y: &Axis,
    title: &str,
    value: fn(Fairness) -> f64,
) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    for conditions in distinct(question.groups.iter().map(|group| &group.conditions)) {
        let groups = question.groups.iter().filter(|it| it.conditions == *conditions && it.hold_us == 0);
        let point = |line: &Line| Some((value(line.fairness?), None));
        let series = series(groups, |group| as_size(group.parties), point);
        figures.extend(figure(&under(title, conditions), x, y, &series)?);
    }
    Ok(figures)
}

/// Our locks without options, over something that the groups differ in; one plot for each of the conditions.
fn over(
    question: &Question,
    x: &Axis,
    y: &Axis,
    title: &str,
    at: impl Fn(&Group) -> f64,
    wanted: impl Fn(&Group) -> bool,
) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    for conditions in distinct(question.groups.iter().map(|group| &group.conditions)) {
        let groups = question.groups.iter().filter(|group| group.conditions == *conditions && wanted(group));
        figures.extend(figure(&under(title, conditions), x, y, &series(groups, &at, median))?);
    }
    Ok(figures)
}

fn under(title: &str, conditions: &Conditions) -> String {
    format!("{title} ({})", show::conditions(conditions))
}

/// A place, and the interval around it.
type Point = (f64, Option<(f64, f64)>);

/// The median and its interval.
#[expect(clippy::unnecessary_wraps, reason = "as one of those that not every line has")]
pub(super) fn median(line: &Line) -> Option<Point> {
    Some((line.median, line.value.map(|value| (value.low, value.high))))
}

/// A series for each of our locks without options.
pub(super) fn series<'a>(
    groups: impl Iterator<Item = &'a Group>,
    at: impl Fn(&Group) -> f64,
    point: impl Fn(&Line) -> Option<Point>,
) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for group in groups {
        for line in group.lines.iter().filter(|line| !line.is_peer && line.who == line.backend) {
            let Some((value, interval)) = point(line) else { continue };
            let number = all.iter().position(|series| series.name == line.who).unwrap_or_else(|| {
                all.push(Series::of_marks(line.who.clone(), color_of(&line.who)));
                all.len() - 1
            });
            let at = at(group);
            all[number].points.push((at, value));
            all[number].band.extend(interval.map(|(low, high)| (at, low, high)));
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Requests that the server received for each grant, over the number of waiters: tasks of one process, and
/// processes.
pub(crate) fn herd(question: &Question) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    for conditions in distinct(question.groups.iter().map(|group| &group.conditions)) {
        for (workload, label) in
            [("crowd", "tasks that want one lock"), ("herd", "processes that want one lock")]
        {
            let x = Axis { label, scale: Scale::Log, shown: PARTIES };
            let y = Axis { label: "requests for each grant", scale: Scale::Log, shown: show::number };
            let mut all: Vec<Series> = Vec::new();
            let is_it = |group: &&Group| group.workload == workload && group.conditions == *conditions;
            for group in question.groups.iter().filter(is_it) {
                for line in &group.lines {
                    let color = all.len();
                    let number = all.iter().position(|series| series.name == line.who).unwrap_or_else(|| {
                        all.push(Series::of_marks(line.who.clone(), color));
                        all.len() - 1
                    });
                    all[number].points.push((as_size(group.parties), line.median));
                }
            }
            let title =
                format!("Requests that the servers received for each grant, over the number of {label}");
            figures.extend(figure(&under(&title, conditions), &x, &y, &all)?);
        }
    }
    Ok(figures)
}

pub(super) fn as_size(number: usize) -> f64 {
    as_float(u64::try_from(number).unwrap_or(u64::MAX))
}
