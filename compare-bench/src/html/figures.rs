//! The plots of the report: which figures are drawn.

use maud::{Markup, PreEscaped, html};

use crate::error::Result;
use crate::html::filters;
use crate::html::plot::{Axis, Scale, Series, draw};
use crate::record::Report;
use crate::stats::as_float;
use crate::stats::buckets::Buckets;
use crate::view::family::{ONE_PROCESS, family, in_words, standing};
use crate::view::line::Line;
use crate::view::{Group, Question, Setting, by_setting, distinct, show};

/// So far the percentile curves go: further, single samples decide.
const LAST_NINE: f64 = 0.9999;

pub(super) const TIME: Axis = Axis { label: "time", scale: Scale::Log, shown: show::time };
const RATE: Axis = Axis { label: "acquisitions a second", scale: Scale::Log, shown: show::number };

/// A plot of one setting, or of several. Nothing if there is nothing to draw.
pub(super) fn figure(
    title: &str,
    of: Option<&Setting>,
    x: &Axis,
    y: &Axis,
    series: &[Series],
) -> Result<Option<Markup>> {
    let Some(svg) = draw(title, x, y, series)? else { return Ok(None) };
    let dashed = series.iter().any(|series| series.is_dashed);
    Ok(Some(html! {
        figure.(of.map(filters::of_setting).unwrap_or_default()) {
            figcaption { (title) @if dashed { ". Dashed: raw statements on the same server." } }
            div.wide { (PreEscaped(svg)) }
        }
    }))
}

/// A family has one colour in all plots that have several.
pub(super) fn color_of(backend: &str) -> usize {
    const ORDER: [&str; 7] =
        ["Redis/Valkey", "ZooKeeper", "PostgreSQL", "Redlock", "MySQL/MariaDB", "SQLite", ONE_PROCESS];
    ORDER.iter().position(|one| *one == family(backend)).unwrap_or(ORDER.len())
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

/// So many members of a family share a plot with the raw statements of each: then there are six lines.
const WITH_RAW: usize = 3;

/// Latency of a lock that nobody else wants. For each setting a plot of one backend of each family, then one
/// of each family with the raw statements.
pub(crate) fn percentiles(runs: &[Report]) -> Result<Vec<Markup>> {
    let x = Axis { label: "share of all times that are shorter", scale: Scale::Nines, shown: percent };
    let mut figures = Vec::new();
    for run in &by_setting(runs) {
        let setting = Setting::of(run);
        let results: Vec<_> = run.results.iter().filter(|result| result.workload == "uncontended").collect();
        let mut draw = |of: &str, ours: &[&str], raw: &[&str]| -> Result<()> {
            let mut series = Vec::new();
            for (number, backend) in ours.iter().enumerate() {
                let Some(result) = results.iter().find(|result| result.backend == *backend) else { continue };
                let (name, color) = match of {
                    "" => (family(backend).to_owned(), color_of(backend)),
                    _ => (in_words(backend), number),
                };
                let line = |name, is_dashed, buckets| Series {
                    is_dashed,
                    has_marks: false,
                    points: curve(buckets),
                    ..Series::of_marks(name, color)
                };
                if raw.contains(backend) && !result.floor_latency_us.histogram.counts.is_empty() {
                    series.push(line(format!("{name}, raw"), true, &result.floor_latency_us.histogram));
                }
                series.push(line(name, false, &result.latency_us.histogram));
            }
            let on = show::setting(&run.conditions, run.sync_us());
            let title = format!("Acquire and release of a free lock{of} ({on})");
            figures.extend(figure(&title, Some(&setting), &x, &TIME, &series)?);
            Ok(())
        };
        let backends = || distinct(results.iter().map(|result| &*result.backend)).into_iter();
        let each = standing(backends());
        if each.len() > 1 {
            draw("", &drawn(backends()), &[])?;
        }
        for one in each.iter().copied().chain(backends().filter(|backend| *backend == ONE_PROCESS)) {
            let members: Vec<&str> = backends().filter(|other| family(other) == family(one)).collect();
            let alone = [one];
            let raw: &[&str] = if members.len() > WITH_RAW { &alone } else { &members };
            let name = if one == ONE_PROCESS { "within one process" } else { family(one) };
            draw(&format!(", {name}"), &members, raw)?;
        }
    }
    Ok(figures)
}

fn percent(share: f64) -> String {
    // No digits that the axis has no place for.
    let text = format!("{:.3}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

pub(super) const PARTIES: fn(f64) -> String = |parties| format!("{parties:.0}");

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

/// Our locks without options, over something that the groups differ in; one plot for each setting.
pub(super) fn over(
    question: &Question,
    x: &Axis,
    y: &Axis,
    title: &str,
    at: impl Fn(&Group) -> f64,
    wanted: impl Fn(&Group) -> bool,
) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    for setting in settings(question) {
        let groups = question.groups.iter().filter(|group| group.setting == *setting && wanted(group));
        let title = under(title, question, setting);
        figures.extend(figure(&title, Some(setting), x, y, &series(groups, &at, median))?);
    }
    Ok(figures)
}

pub(super) fn settings(question: &Question) -> Vec<&Setting> {
    distinct(question.groups.iter().map(|group| &group.setting))
}

/// With how long a sync of the disk took: most figures on a disk depend on it.
pub(super) fn under(title: &str, question: &Question, setting: &Setting) -> String {
    let sync_us =
        question.groups.iter().find(|group| group.setting == *setting).and_then(|group| group.sync_us);
    format!("{title} ({})", show::setting(&setting.conditions, sync_us))
}

/// A place, and the interval around it.
type Point = (f64, Option<(f64, f64)>);

/// The median and its interval.
#[expect(clippy::unnecessary_wraps, reason = "as one of those that not every line has")]
pub(super) fn median(line: &Line) -> Option<Point> {
    Some((line.median, line.value.map(|value| (value.low, value.high))))
}

/// A series for each of our locks without options, of one backend of each family: a plot with more lines
/// cannot be read, and the tables have all.
pub(super) fn series<'a>(
    groups: impl Iterator<Item = &'a Group>,
    at: impl Fn(&Group) -> f64,
    point: impl Fn(&Line) -> Option<Point>,
) -> Vec<Series> {
    let groups: Vec<&Group> = groups.collect();
    let plain =
        |group: &'a Group| group.lines.iter().filter(|line| !line.is_peer && line.who == line.backend);
    let shown = drawn(groups.iter().flat_map(|&group| plain(group)).map(|line| &*line.who));
    let mut all: Vec<Series> = Vec::new();
    for &group in &groups {
        for line in plain(group).filter(|line| shown.contains(&&*line.who)) {
            let Some((value, interval)) = point(line) else { continue };
            let at = at(group);
            let series = series_of(&mut all, family(&line.who), color_of(&line.who));
            series.points.push((at, value));
            series.band.extend(interval.map(|(low, high)| (at, low, high)));
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// A series for our lock on a backend without options, and one for each other library there, over the number
/// of parties.
pub(super) fn beside(groups: &[&Group], backend: &str, value: impl Fn(&Line) -> Option<f64>) -> Vec<Series> {
    let is_unfit =
        |who: &str| groups.iter().flat_map(|group| &group.lines).any(|line| line.who == who && line.is_unfit);
    let mut all: Vec<Series> = Vec::new();
    for group in groups {
        for line in group.lines.iter().filter(|line| line.backend == backend && line.option.is_none()) {
            let Some(value) = value(line) else { continue };
            let color = all.len();
            // Of "rslock 1.2 on redis" the name.
            let name = line.who.split(' ').next().filter(|_| line.is_peer).unwrap_or("lockwell");
            let name = if is_unfit(&line.who) { format!("{name} (faulty)") } else { name.to_owned() };
            series_of(&mut all, &name, color).points.push((as_size(group.parties), value));
        }
    }
    all.truncate(MOST);
    all
}

/// The series of this name, a new one at first.
fn series_of<'a>(all: &'a mut Vec<Series>, name: &str, color: usize) -> &'a mut Series {
    let number = all.iter().position(|series| series.name == name).unwrap_or_else(|| {
        all.push(Series::of_marks(name.to_owned(), color));
        all.len() - 1
    });
    &mut all[number]
}

/// The most lines of a plot.
pub(super) const MOST: usize = 6;

/// Of each family the backend that stands for it in a plot. Where there are too many, what one host alone can
/// use is left out: nobody chooses between it and the others, and the tables have it.
pub(super) fn drawn<'a>(backends: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut drawn = standing(backends);
    if drawn.len() > MOST {
        drawn.retain(|backend| family(backend) != "SQLite");
    }
    drawn.truncate(MOST);
    drawn
}

/// Requests that the server received for each grant, over the number of waiters: tasks of one process, and
/// processes. Of each family, then of each server beside other libraries and recipes.
pub(crate) fn herd(question: &Question) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    let y = Axis { label: "requests for each grant", scale: Scale::Log, shown: show::number };
    let at = |group: &Group| as_size(group.parties);
    for setting in settings(question) {
        for (workload, label) in
            [("crowd", "tasks that want one lock"), ("herd", "processes that want one lock")]
        {
            let x = Axis { label, scale: Scale::Log, shown: PARTIES };
            let is_it = |group: &&Group| group.workload == workload && group.setting == *setting;
            let groups: Vec<&Group> = question.groups.iter().filter(is_it).collect();
            // How many requests there are does not depend on the disk.
            let on = show::conditions(&setting.conditions);
            let what =
                format!("Requests that the servers received for each grant, over the number of {label}");
            let title = format!("{what} ({on})");
            figures.extend(figure(
                &title,
                Some(setting),
                &x,
                &y,
                &series(groups.iter().copied(), at, median),
            )?);
            let peers = groups.iter().flat_map(|group| &group.lines).filter(|line| line.is_peer);
            for backend in distinct(peers.map(|line| &*line.backend)) {
                let all = beside(&groups, backend, |line| Some(line.median));
                let title = format!("{what}: {}, beside others ({on})", in_words(backend));
                figures.extend(figure(&title, Some(setting), &x, &y, &all)?);
            }
        }
    }
    Ok(figures)
}

pub(super) fn as_size(number: usize) -> f64 {
    as_float(u64::try_from(number).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, report};
    use crate::target::kind::Kind;
    use crate::view::questions;

    #[test]
    fn a_plot_has_six_lines_at_most() {
        let mut run = report();
        run.results = Kind::ALL.iter().map(|kind| measured(kind.name(), 6)).collect();
        let questions = questions(&[run.clone()]);
        let processes = questions.iter().find(|question| question.id == "processes").unwrap();
        let lines = series(processes.groups.iter(), |_| 1.0, median);
        let names: Vec<&str> = lines.iter().map(|series| &*series.name).collect();
        assert_eq!(names, ["MySQL/MariaDB", "PostgreSQL", "Redis/Valkey", "Redlock", "ZooKeeper", "etcd"]);
        assert_eq!(drawn(["sqlite", "redis"].into_iter()), ["sqlite", "redis"], "there is a place for it");

        for result in &mut run.results {
            result.workload = "uncontended".to_owned();
            result.latency_us.histogram = Buckets { up_to_ns: vec![1000, 2000, 4000], counts: vec![5, 3, 2] };
            result.floor_latency_us = result.latency_us.clone();
        }
        let plots: Vec<String> =
            percentiles(&[run]).unwrap().into_iter().map(maud::Markup::into_string).collect();
        assert_eq!(plots.len(), 9, "six families, each of the seven, and the lock within one process");
        let mut names = 0;
        for plot in &plots {
            // The name of a line stands beside its end, at the left of its place.
            let all = plot.matches("text-anchor=\"start\"").count();
            let raw = plot.matches(", raw\n").count();
            assert!((1..=6).contains(&all), "{plot}");
            names += all - raw;
        }
        assert_eq!(names, 6 + Kind::ALL.len(), "each backend is in the plot of its family");
    }
}
