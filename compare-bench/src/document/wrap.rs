//! Lines that fit on the screen.

/// A terminal narrower than this breaks the lines.
pub(super) const WIDTH: usize = 100;

/// Lines that fit on a terminal.
pub(crate) fn wrapped(text: &str) -> Vec<String> {
    wrapped_to(text, WIDTH)
}

/// Lines of at most that width. A word that is longer stands alone.
pub(super) fn wrapped_to(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
