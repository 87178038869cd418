//! What of the report is shown: boxes to tick for the data, the machine and the family. The style sheet hides
//! what is not ticked, so that no script is needed.

use std::fmt::Write;

use maud::{Markup, html};

use crate::record::{Conditions, Report};
use crate::view::family::{family, in_words};
use crate::view::{Setting, distinct, settings, show};

/// Something that can be ticked.
struct Choice {
    /// Of all elements that it shows.
    class: String,
    words: String,
    is_ticked: bool,
}

/// The classes of what belongs to one setting.
pub(super) fn of_setting(setting: &Setting) -> String {
    format!("{} {}", of_conditions(&setting.conditions), of_machine(&setting.machine))
}

/// The class of what belongs to the family of a backend.
pub(super) fn of_family(backend: &str) -> String {
    class("family", family(backend))
}

fn of_conditions(Conditions { durability, storage, delay_us }: &Conditions) -> String {
    class("data", &format!("{storage} {durability} {delay_us}"))
}

fn of_machine(machine: &str) -> String {
    class("machine", machine)
}

fn class(kind: &str, words: &str) -> String {
    let letters =
        words.chars().map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' });
    format!("{kind}-{}", letters.collect::<String>())
}

/// The boxes, by what they choose. Of several conditions the first is shown, as the whole would be long.
fn choices(runs: &[Report]) -> [(&'static str, Vec<Choice>); 3] {
    let settings = settings(runs);
    let data = distinct(settings.iter().map(|setting| &setting.conditions));
    let machines = distinct(settings.iter().map(|setting| &*setting.machine));
    let backends = runs.iter().flat_map(|run| &run.backends).map(|backend| &*backend.name);
    let choice = |class, words: &str, is_ticked| Choice { class, words: words.to_owned(), is_ticked };
    let of_data =
        |(number, it): (usize, &Conditions)| choice(of_conditions(it), &show::conditions(it), number == 0);
    [
        ("Data", data.into_iter().enumerate().map(of_data).collect()),
        ("Machine", machines.into_iter().map(|it| choice(of_machine(it), it, true)).collect()),
        (
            "Family",
            distinct(backends.map(family))
                .into_iter()
                .map(|it| choice(of_family(it), &in_words(it), true))
                .collect(),
        ),
    ]
}

/// The boxes. They are at the beginning of the page, and hold for all of it.
pub(super) fn controls(runs: &[Report]) -> Markup {
    html! {
        details.filters {
            summary { "Other data, machines and families" }
            @for (what, choices) in choices(runs) {
                fieldset {
                    legend { (what) }
                    @for Choice { class, words, is_ticked } in choices {
                        label { input type="checkbox" autocomplete="off" id={ "show-" (class) } checked[is_ticked]; " " (words) }
                    }
                }
            }
        }
    }
}

/// What hides the rest. The boxes are looked for in the header alone: in a large page a browser may look for
/// minutes.
pub(super) fn style(runs: &[Report]) -> String {
    let mut style = String::new();
    for Choice { class, .. } in choices(runs).into_iter().flat_map(|(_, choices)| choices) {
        writeln!(style, "header:has(#show-{class}:not(:checked)) ~ * .{class} {{ display: none; }}")
            .expect("a string takes all");
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::report;
    use crate::view::family::tests::backend;

    #[test]
    fn each_box_hides_what_has_its_class() {
        let (mut disk, mut tmpfs, mut far) = (report(), report(), report());
        disk.backends = ["redis", "valkey", "postgres"].map(|name| backend(name, &[])).into();
        tmpfs.conditions.storage = "tmpfs".to_owned();
        far.machine.cpu = "<another>".to_owned();
        let runs = [disk, tmpfs, far];
        let (controls, style) = (controls(&runs).into_string(), style(&runs));
        let ids: Vec<&str> =
            controls.split("id=\"show-").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(ids.len(), 2 + 2 + 2, "data, machines, families: {ids:?}");
        for id in &ids {
            assert_eq!(
                style.matches(&format!("#show-{id}:not(:checked)) ~ * .{id} {{")).count(),
                1,
                "{style}"
            );
        }
        assert!(style.lines().count() == ids.len() && !style.contains('<'), "{style}");
        assert_eq!(controls.matches(" checked").count(), 5, "all but the second data");
        assert!(ids.contains(&&*of_family("sentinel")) && ids.contains(&&*of_family("postgres")));
        let classes = of_setting(&Setting::of(&runs[1]));
        assert!(classes.split(' ').all(|class| ids.contains(&class)), "{classes}");
    }
}
