//! The fields of spans and events begin with `lockwell.`, beside those of an application in one log. `error` alone has
//! the name that it has everywhere.

use crate::statics::product;

const MACROS: [&str; 10] = [
    "trace!(",
    "debug!(",
    "info!(",
    "warn!(",
    "error!(",
    "trace_span!(",
    "debug_span!(",
    "info_span!(",
    "warn_span!(",
    "error_span!(",
];

/// The arguments of a macro, whose text begins here.
fn arguments(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut is_text, mut before) = (vec![String::new()], 1, false, ' ');
    for letter in text.chars() {
        if letter == '"' && before != '\\' {
            is_text = !is_text;
        } else if !is_text {
            depth += i32::from("([{".contains(letter)) - i32::from(")]}".contains(letter));
        }
        match (letter, depth) {
            (_, 0) => break,
            (',', 1) if !is_text => found.push(String::new()),
            _ => found.last_mut().expect("the first").push(letter),
        }
        before = letter;
    }
    found.iter().map(|argument| argument.trim().to_owned()).collect()
}

/// The fields of all spans and events in a text, without the values.
fn fields(text: &str) -> Vec<String> {
    let text = text.split("mod tests {").next().unwrap_or_default();
    let calls = text.split("tracing::").filter_map(|rest| MACROS.iter().find_map(|it| rest.strip_prefix(it)));
    let all = calls.flat_map(arguments);
    // A target, a name or a message is no field.
    let fields = all.filter(|it| !it.is_empty() && !it.starts_with(['"', '$']) && !it.starts_with("target:"));
    let name =
        |it: &str| it.split('=').next().unwrap_or_default().trim().trim_start_matches(['%', '?']).to_owned();
    fields.map(|it| name(&it)).collect()
}

#[test]
fn the_fields_of_spans_and_events_are_ours() {
    let mut count = 0;
    for (file, text) in product() {
        for field in fields(&text) {
            count += 1;
            assert!(field == "error" || field.starts_with("lockwell."), "{file}: the field {field}");
        }
    }
    assert!(count > 50, "they are found: {count}");
}

#[test]
fn a_field_is_found() {
    let text = r#"
        tracing::warn!(lockwell.name = %claim.name(), ?took, error = format!("{error:#}, (\""), "text, other = 1");
        tracing::debug_span!(target: "lockwell", $name, backend = a(b, c));"#;
    assert_eq!(fields(text), ["lockwell.name", "took", "error", "backend"]);
}
