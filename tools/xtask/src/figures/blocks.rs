//! The tables: each by its name.

use crate::figures::markdown::{row, rule};
use serde_json::Value;

use super::delays::delays;
use super::evidence::Evidence;
use super::faults::faults;
use super::hot::hot;
use super::runs::{Run, digits, libraries, list, median, named, rate, ratio, time};
use crate::shell::Result;

/// Makes the text of a block from the figures of a run.
type Fill = fn(&Run) -> String;

/// A figure of a result, if it has it.
type Figure = fn(&Value) -> Option<String>;

const BLOCKS: [(&str, Fill); 10] = [
    ("run", about),
    ("summary", summary),
    ("headline", headline),
    ("pairs", pairs),
    ("local", local),
    ("peers", peers),
    ("contention", contention),
    ("hot", hot),
    ("recovery", recovery),
    ("holding", holding),
];

/// A block `NAME RUN`, or `delays WORKLOAD`.
pub(super) fn block(what: &str, evidence: &Evidence) -> Result<String> {
    let (name, run) = what.split_once(' ').ok_or_else(|| format!("{what:?} is not NAME RUN"))?;
    match name {
        "delays" => return delays(run, &evidence.runs),
        "faults" => return faults(run, &evidence.faults),
        _ => (),
    }
    let Some((_, write)) = BLOCKS.iter().find(|(known, _)| *known == name) else {
        return Err(format!(
            "there is no block {name:?}, but delays, faults, {}",
            BLOCKS.map(|(name, _)| name).join(", ")
        ));
    };
    Ok(write(named(&evidence.runs, run)?))
}

fn about(run: &Run) -> String {
    run.about() + "\n"
}

/// Of a workload that is compared by its latency.
fn latency(result: &Value) -> Option<String> {
    median(result).map(time)
}

/// Of a workload that is compared by its rate.
fn per_second(result: &Value) -> Option<String> {
    median(result).map(rate)
}

/// One figure of the case with the most parties of all backends, which the head of the column names; nothing
/// where this backend does not have that case.
fn cell(run: &Run, backend: &str, workload: &str, figure: Figure) -> String {
    let result =
        run.last(backend, workload, 0).filter(|result| result["parties"].as_u64() == parties(run, workload));
    result.and_then(figure).unwrap_or_default()
}

/// The most parties that the run has for a workload.
fn parties(run: &Run, workload: &str) -> Option<u64> {
    run.results(workload).filter_map(|result| result["parties"].as_u64()).max()
}

fn most(run: &Run, workload: &str) -> String {
    parties(run, workload).map_or_else(|| "?".to_owned(), |parties| parties.to_string())
}

/// All backends on what people ask first. Each column takes the case with the most parties that the run has.
fn headline(run: &Run) -> String {
    let backends = run.backends();
    let mut table = row(&[
        String::new(),
        "acquire + release, median".to_owned(),
        "to raw statements [95 %]".to_owned(),
        format!("{} tasks, a name each", most(run, "independent")),
        format!("{} processes, one name: from a release to the next holder, median", most(run, "handoff")),
        format!("{} tasks of one process, one name", most(run, "crowd")),
    ]);
    table += &rule(6);
    for backend in backends {
        let of = |workload, figure| cell(run, backend, workload, figure);
        table += &row(&[
            backend.to_owned(),
            of("uncontended", latency),
            of("uncontended", |result| ratio(&result["ratio"])),
            of("independent", per_second),
            of("handoff", latency),
            of("crowd", per_second),
        ]);
    }
    table
}

/// One backend of each kind, for a reader who has a minute.
fn summary(run: &Run) -> String {
    const ROWS: [(&str, &str); 7] = [
        ("sqlite", "SQLite"),
        ("postgres", "PostgreSQL"),
        ("mariadb", "MariaDB"),
        ("redis", "Redis"),
        ("redlock", "Redlock of 5"),
        ("zookeeper3", "ZooKeeper of 3"),
        ("etcd3", "etcd of 3"),
    ];
    let mut table = row(&[
        String::new(),
        "a free lock: acquire and release".to_owned(),
        format!("hand-over between {} processes", most(run, "handoff")),
        "free again after its holder was killed".to_owned(),
    ]);
    table += &rule(4);
    for (backend, name) in ROWS {
        let killed = run
            .results("recovery")
            .find(|it| it["backend"] == backend && it["case"] == "the holder is killed");
        table += &row(&[
            name.to_owned(),
            cell(run, backend, "uncontended", latency),
            cell(run, backend, "handoff", latency),
            killed.and_then(latency).unwrap_or_default(),
        ]);
    }
    table
}

/// A free lock beside raw statements: one task, and many with a lock each.
fn pairs(run: &Run) -> String {
    let mut table = row(&[
        String::new(),
        "acquire + release, median".to_owned(),
        "to raw statements [95 %]".to_owned(),
        format!("{} tasks, a name each", most(run, "independent")),
        "to raw statements [95 %]".to_owned(),
    ]);
    table += &rule(5);
    for backend in run.backends() {
        let of = |workload, figure| cell(run, backend, workload, figure);
        table += &row(&[
            backend.to_owned(),
            of("uncontended", latency),
            of("uncontended", |result| ratio(&result["ratio"])),
            of("independent", per_second),
            of("independent", |result| ratio(&result["ratio"])),
        ]);
    }
    table
}

/// The tasks of a process on one name: each for itself, and passing the lock on.
fn local(run: &Run) -> String {
    const IN_ORDER: Option<&str> = Some("server_order=true");
    let titles = ["", "tasks", "`server_order`", "by default", "`hand_over(1000, 20 ms)`"];
    let measured = |option| {
        run.backends().into_iter().any(|backend| {
            run.last(backend, "crowd", 0).is_some_and(|plain| run.variant(plain, option).is_some())
        })
    };
    // In runs without this option, each task was for itself.
    let plain = if measured(IN_ORDER) { [IN_ORDER, None] } else { [None, Some("not measured")] };
    let options = [plain[0], plain[1], Some("hand_over=1000/20ms")];
    let mut table = row(&titles.map(str::to_owned)) + &rule(5);
    for backend in run.backends() {
        let Some(plain) = run.last(backend, "crowd", 0) else { continue };
        let of = |option: Option<&str>| run.variant(plain, option).and_then(per_second);
        let mut cells = vec![backend.to_owned(), plain["parties"].to_string()];
        cells.extend(options.map(|option| of(option).unwrap_or_else(|| "not measured".to_owned())));
        table += &row(&cells);
    }
    table
}

/// From a release to the process that had waited longest, which is what is measured of other libraries. Of
/// ours it is in the rounds beside them.
fn to_the_first(result: &Value) -> Option<String> {
    if result["theirs"].is_number() {
        return latency(result);
    }
    let rounds = list(&result["rounds"]).count();
    let is_fit = |peer: &&Value| peer["unsafe_because"].is_null() && list(&peer["rounds"]).count() == rounds;
    let beside = list(&result["peers"]).find(is_fit)?;
    let mut times: Vec<f64> = list(&beside["rounds"]).filter_map(|round| round["ours"].as_f64()).collect();
    times.sort_by(f64::total_cmp);
    let half = times.len() / 2;
    let odd = times.get(half)?;
    Some(time(if times.len() % 2 == 1 { *odd } else { f64::midpoint(times[half - 1], *odd) }))
}

fn jain(result: &Value) -> Option<String> {
    result["handing"]["jain"].as_f64().map(digits)
}

fn overlaps(result: &Value) -> Option<String> {
    result["handing"]["overlaps"].as_u64().map(|count| count.to_string())
}

/// Other libraries beside ours on the same servers in the same rounds.
fn peers(run: &Run) -> String {
    const COLUMNS: [(&str, Figure); 5] = [
        ("uncontended", latency),
        ("handoff", to_the_first),
        ("handoff", jain),
        ("handoff", overlaps),
        ("crowd", per_second),
    ];
    let mut table = row(&[
        String::new(),
        "acquire + release, median".to_owned(),
        format!(
            "{} processes, one name: from a release to the one that waited longest, median",
            most(run, "handoff")
        ),
        "Jain's index".to_owned(),
        "two holders at once".to_owned(),
        format!("{} tasks, one name", most(run, "crowd")),
    ]);
    table += &rule(6);
    for backend in run.backends() {
        let results = COLUMNS.map(|(workload, figure)| (run.last(backend, workload, 0), figure));
        let names = libraries(results[0].0);
        if names.is_empty() {
            continue;
        }
        let mut cells = vec![format!("lockwell on {backend}")];
        cells.extend(results.map(|(result, figure)| result.and_then(figure).unwrap_or_default()));
        table += &row(&cells);
        for name in names {
            let peer = |result: Option<&Value>, figure: Figure| {
                let peer = list(&result?["peers"]).find(|peer| peer["name"] == name)?.clone();
                let said = peer["error"].as_str().map(|_| "failed".to_owned());
                Some((said.or_else(|| figure(&peer)), peer["version"].as_str().unwrap_or("").to_owned()))
            };
            let found = results.map(|(result, figure)| peer(result, figure));
            let version = found.iter().flatten().map(|(_, version)| version.as_str()).next().unwrap_or("");
            let mut cells = vec![format!("{name} {version}")];
            cells.extend(found.iter().map(|it| it.as_ref().and_then(|it| it.0.clone()).unwrap_or_default()));
            table += &row(&cells);
        }
    }
    table
}

/// Grants a second on one name, over the number of processes: of each backend, and of the libraries beside
/// it.
fn contention(run: &Run) -> String {
    const CASES: [(u64, u64); 5] = [(1, 0), (4, 0), (16, 0), (64, 0), (4, 1000)];
    let titles = ["", "1 process", "4", "16", "64", "4, each holds for 1 ms"];
    let mut table = row(&titles.map(str::to_owned)) + &rule(titles.len());
    let each = |result: &Value| result["per_second"].as_f64().map(rate);
    for backend in run.backends().into_iter().filter(|backend| *backend != "memory") {
        let results = CASES.map(|(parties, hold_us)| run.contended(backend, parties, hold_us));
        let ours = results.map(|result| result.and_then(each).unwrap_or_default());
        table += &row(&[vec![backend.to_owned()], ours.into()].concat());
        for name in libraries(results.into_iter().flatten()) {
            let of = |result: Option<&Value>| {
                let peer = list(&result?["peers"]).find(|peer| peer["name"] == name)?;
                let failed = peer["error"].as_str().map(|_| "failed".to_owned());
                failed.or_else(|| each(peer))
            };
            let theirs = results.map(|result| of(result).unwrap_or_default());
            table += &row(&[vec![format!("{name} on {backend}")], theirs.into()].concat());
        }
    }
    table
}

/// The median of the times from each fault to the next grant, and the longest that it should take.
fn recovery(run: &Run) -> String {
    let mut faults: Vec<&str> = Vec::new();
    for fault in run.results("recovery").filter_map(|result| result["case"].as_str()) {
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    let mut head = vec![String::new()];
    head.extend(faults.iter().map(|fault| (*fault).to_owned()));
    let mut table = row(&head) + &rule(head.len());
    for backend in run.backends() {
        let mut cells = vec![backend.to_owned()];
        for fault in &faults {
            let found = run.results("recovery").find(|it| it["backend"] == backend && it["case"] == *fault);
            cells.push(found.and_then(times_and_bound).unwrap_or_default());
        }
        if cells[1..].iter().any(|cell| !cell.is_empty()) {
            table += &row(&cells);
        }
    }
    table
}

/// The median, the shortest and the longest time, and the bound that follows from the settings.
fn times_and_bound(result: &Value) -> Option<String> {
    let recovery = &result["recovery"];
    let times: Vec<f64> = list(&recovery["times_us"]).filter_map(Value::as_f64).collect();
    let shortest = times.iter().copied().reduce(f64::min)?;
    let longest = times.iter().copied().reduce(f64::max)?;
    let range = format!("{} [{} .. {}]", latency(result)?, time(shortest), time(longest));
    let Some(bound) = recovery["bound_us"].as_f64() else { return Some(range) };
    Some(match times.iter().filter(|one| **one > bound).count() {
        0 => format!("{range}, at most {}", time(bound)),
        late => format!("{range}, {late} of {} later than {}", times.len(), time(bound)),
    })
}

/// What the most locks cost that the run held.
fn holding(run: &Run) -> String {
    let cells = |texts: [&str; 6]| texts.map(str::to_owned);
    let mut table = row(&cells(["", "locks held", "requests", "client", "server", "connections"])) + &rule(6);
    for backend in run.backends() {
        let Some(result) = run.last(backend, "holding", 0) else { continue };
        let holding = &result["holding"];
        let cost = |cost: &Value| {
            let cpu = cost["cpu_us"].as_f64()? / 10_000.0;
            let memory = cost["memory_kib"].as_f64()? / 1024.0;
            Some(format!("{} % of a core, {} MiB", digits(cpu), digits(memory)))
        };
        let or_nothing = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table += &row(&[
            backend.to_owned(),
            holding["locks"].to_string(),
            or_nothing(holding["requests_per_second"].as_f64().map(|each| format!("{}/s", digits(each)))),
            or_nothing(cost(&holding["client"])),
            or_nothing(cost(&holding["server"])),
            holding["connections"].to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::runs::tests::run;

    #[test]
    fn each_table_has_what_was_measured() {
        let evidence = Evidence { runs: vec![run("disk")], ..Evidence::default() };
        let block = |what: &str| block(what, &evidence).unwrap();
        for (name, line) in [
            ("headline", "| redis | 45.0 us | 1.25 [1.20 .. 1.30] | 22.7 k/s | 220 us | 22.7 k/s |"),
            ("summary", "| Redis | 45.0 us | 220 us | 3.00 s |"),
            ("pairs", "| redis | 45.0 us | 1.25 [1.20 .. 1.30] | 22.7 k/s | "),
            ("peers", "| lockwell on redis | 45.0 us | 240 us | "),
            ("peers", "| rslock 0.10 | 37.0 us | 63.2 ms | 0.88 | 0 | 1261/s |"),
            ("contention", "| redis |  | 22.9 k/s | 22.9 k/s |  |  |"),
            ("contention", "| rslock on redis |  | 1270/s | 1270/s |  |  |"),
            ("hot", "| rslock on redis | 1261/s | 1.11 [1.05 .. 1.20] |"),
            ("recovery", "| redis | 3.00 s [2.50 s .. 4.00 s], at most 5.30 s |"),
            ("local", "| redis | 500 | 450/s | 22.7 k/s | not measured |"),
            ("holding", "| redis | 1000 | 2.25/s | 0.09 % of a core, 8.79 MiB | - | 2 |"),
            ("run", "A CPU, 2 cores"),
        ] {
            let text = block(&format!("{name} disk"));
            assert!(text.contains(line), "{line} in {text}");
            let widths: Vec<_> = text
                .lines()
                .filter(|line| line.starts_with('|'))
                .map(|line| line.matches('|').count())
                .collect();
            assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        }
        assert!(block("headline disk").contains("64 tasks, a name each"));
    }
}
