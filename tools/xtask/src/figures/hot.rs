//! Several names at once: grants a second of each backend and library, over the number of names.

use serde_json::Value;

use super::runs::{Run, libraries, list, median, rate, ratio};
use crate::figures::markdown::{row, rule};

/// For each number of names two columns: the rate, and how that of lockwell compares with it.
pub(super) fn hot(run: &Run) -> String {
    let mut cases: Vec<(u64, &str)> = Vec::new();
    for result in run.results("hot") {
        let case = result["parties"].as_u64().zip(result["case"].as_str());
        cases.extend(case.filter(|case| !cases.contains(case)));
    }
    cases.sort_unstable();
    let mut head = vec![String::new()];
    head.extend(cases.iter().flat_map(|(_, case)| [(*case).to_owned(), "lockwell to it [95 %]".to_owned()]));
    let mut table = row(&head) + &rule(head.len());
    for backend in run.backends() {
        let find = |(_, case): &(u64, &str)| {
            run.results("hot").find(|result| result["backend"] == backend && result["case"] == *case)
        };
        let results: Vec<Option<&Value>> = cases.iter().map(find).collect();
        if results.iter().all(Option::is_none) {
            continue;
        }
        let ours = results.iter().map(|result| [result.and_then(per_second), None]);
        table += &line(backend.to_owned(), ours);
        for name in libraries(results.iter().copied().flatten()) {
            let theirs = results.iter().map(|result| {
                let peer = result.and_then(|result| list(&result["peers"]).find(|peer| peer["name"] == name));
                [peer.and_then(per_second), peer.and_then(|peer| ratio(&peer["ours_to_theirs"]))]
            });
            table += &line(format!("{name} on {backend}"), theirs);
        }
    }
    table
}

fn line(who: String, cells: impl Iterator<Item = [Option<String>; 2]>) -> String {
    row(&std::iter::once(who).chain(cells.flatten().map(Option::unwrap_or_default)).collect::<Vec<_>>())
}

/// The median over the rounds, which the report shows, too.
fn per_second(result: &Value) -> Option<String> {
    let failed = result["error"].as_str().map(|_| "failed".to_owned());
    failed.or_else(|| median(result).map(rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::runs::tests::{changed, run};

    #[test]
    fn each_number_of_names_has_its_columns() {
        let run = changed(run("disk"), |results| {
            let hot = results.iter_mut().find(|result| result["workload"] == "hot").unwrap();
            let mut more = hot.clone();
            (hot["case"], more["case"]) = ("8 names".into(), "32 names".into());
            more["parties"] = 64.into();
            more["peers"][0]["error"] = "it ended early".into();
            more["peers"][0]["ours_to_theirs"] = Value::Null;
            results.insert(0, more);
        });
        let to = "lockwell to it [95 %]";
        let expected = format!(
            "|  | 8 names | {to} | 32 names | {to} |\n|---|---|---|---|---|\n| redis | 22.7 k/s |  | 22.7 k/s |  |\n\
             | rslock on redis | 1261/s | 1.11 [1.05 .. 1.20] | failed |  |\n"
        );
        assert_eq!(hot(&run), expected);
    }

    #[test]
    fn a_run_of_before_has_an_empty_table() {
        let run = changed(run("disk"), |results| results.retain(|result| result["workload"] != "hot"));
        assert_eq!(hot(&run), "|  |\n|---|\n");
    }
}
