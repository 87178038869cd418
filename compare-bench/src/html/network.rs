//! The section on slow networks: latency over the delay, and the number of round trips.

use maud::{Markup, html};

use crate::error::Result;
use crate::html::figures::{figure, median, series};
use crate::html::plot::{Axis, Scale};
use crate::html::{filters, tables};
use crate::stats::as_float;
use crate::view::family::in_words;
use crate::view::line::Line;
use crate::view::{Group, Question, Setting, show};

/// Of a free lock and of a hand-over between processes.
pub(super) fn section(
    free: Option<&Question>,
    processes: Option<&Question>,
    slow: Option<&Question>,
) -> Result<Markup> {
    let mut parts = Vec::new();
    for groups in free.map(|question| lines(question, 1)).unwrap_or_default() {
        parts.push(part("Acquire and release", "acquire and release", &groups)?);
    }
    if let Some((question, processes)) = processes.and_then(|question| Some((question, fewest(question)?))) {
        let title = format!("From a release to the next grant, {processes} processes");
        for groups in lines(question, processes) {
            parts.push(part(&title, "from a release to the next grant", &groups)?);
        }
    }
    Ok(html! {
        @if parts.is_empty() {
            p.faint { "A line over the delay needs runs with several delays." }
        } @else {
            p { "The time there and back is twice the delay. The slope over it is the number of round trips." }
        }
        @for part in &parts { (part) }
        @if let Some(slow) = slow { p { (slow.what) } (tables::groups(slow)) }
    })
}

/// The fewest processes that hand a lock to each other.
fn fewest(question: &Question) -> Option<usize> {
    question.groups.iter().map(|group| group.parties).filter(|parties| *parties > 1).min()
}

/// The groups of so many parties that differ in nothing but the delay, where there are several.
fn lines(question: &Question, parties: usize) -> Vec<Vec<&Group>> {
    let mut all: Vec<Vec<&Group>> = Vec::new();
    for group in &question.groups {
        // Parties that release at once: nothing but the way.
        if group.hold_us > 0 || group.parties != parties {
            continue;
        }
        let is_like = |other: &Vec<&Group>| {
            let (one, other) = (&group.setting, &other[0].setting);
            let data = |setting: &Setting| {
                (setting.conditions.durability.clone(), setting.conditions.storage.clone())
            };
            one.machine == other.machine && data(one) == data(other)
        };
        match all.iter_mut().find(|other| is_like(other)) {
            Some(others) => others.push(group),
            None => all.push(vec![group]),
        }
    }
    all.retain(|groups| groups.len() > 1);
    all
}

/// In microseconds.
fn delay(group: &Group) -> f64 {
    as_float(group.setting.conditions.delay_us)
}

fn part(title: &str, what: &str, groups: &[&Group]) -> Result<Markup> {
    let x = Axis {
        label: "time there and back that the network adds",
        scale: Scale::Linear,
        shown: |ms| format!("{ms:.0} ms"),
    };
    let y = Axis { label: "time", scale: Scale::Linear, shown: show::time };
    let storage = &groups[0].setting.conditions.storage;
    let title = format!("{title}, over the delay of the network (data on {storage}{})", sync(groups));
    let all = series(groups.iter().copied(), |group| 2.0 * delay(group) / 1000.0, median);
    let figure = figure(&title, None, &x, &y, &all)?;
    let ours = |group: &Group, who: &str| -> Option<f64> {
        group.lines.iter().find(|line| line.who == who).map(|line| line.median)
    };
    let mut names: Vec<&str> = groups
        .iter()
        .flat_map(|group| &group.lines)
        .filter(|line| is_plain(line))
        .map(|line| &*line.who)
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(html! {
        @if let Some(figure) = figure { (figure) }
        div.wide { table {
            thead { tr {
                th { (what) }
                @for group in groups { th.n { (show::time(delay(group))) " each way" } }
                th.n { "round trips" }
            } }
            tbody { @for name in names { tr.(filters::of_family(name)) {
                td { (in_words(name)) }
                @for group in groups { td.n { (ours(group, name).map_or_else(|| "-".to_owned(), show::time)) } }
                td.n { (trips(groups, |group| ours(group, name)).map_or_else(|| "-".to_owned(), |trips| format!("{trips:.1}"))) }
            } } }
        } }
    })
}

/// How long a sync of the disk took: each run has its own.
fn sync(groups: &[&Group]) -> String {
    let syncs = || groups.iter().filter_map(|group| group.sync_us);
    let (low, high) = (syncs().fold(f64::INFINITY, f64::min), syncs().fold(0.0, f64::max));
    match high > 0.0 {
        true if low < high => format!(", where a sync takes {} to {}", show::time(low), show::time(high)),
        true => format!(", where a sync takes {}", show::time(high)),
        false => String::new(),
    }
}

fn is_plain(line: &Line) -> bool {
    !line.is_peer && line.who == line.backend && !line.is_local
}

/// The slope between the shortest and the longest delay.
fn trips(groups: &[&Group], time: impl Fn(&Group) -> Option<f64>) -> Option<f64> {
    let mut points = groups.iter().filter_map(|group| Some((2.0 * delay(group), time(group)?)));
    let first = points.next()?;
    let last = points.last()?;
    (last.0 > first.0).then(|| (last.1 - first.1) / (last.0 - first.0))
}
