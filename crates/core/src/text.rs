//! Error text is hostile. It is cleaned and cut once, before it is stored anywhere.

/// The most bytes of an error that are kept.
pub const ERROR_BYTES_MAX: usize = 64 * 1024;
/// The most bytes of a handler's output that are kept: its end.
pub const OUTPUT_BYTES_MAX: usize = 8 * 1024;

/// Cleans and cuts error text: NUL and other control characters but line breaks and tabs become
/// `\u{…}` escapes, and what is too long keeps its beginning and says how much is missing.
pub fn clean_error(text: &str) -> String {
    clean(text, ERROR_BYTES_MAX, 0)
}

/// The same without a copy where nothing is to be cleaned.
pub fn cleaned_error(text: &str) -> std::borrow::Cow<'_, str> {
    let plain = |byte: &u8| (0x20..0x7f).contains(byte) || *byte == b'\n' || *byte == b'\t';
    if text.len() + 10 <= ERROR_BYTES_MAX && text.as_bytes().iter().all(plain) {
        return text.into();
    }
    clean_error(text).into()
}

/// The same from raw bytes; what is not UTF-8 becomes U+FFFD.
pub fn clean_error_bytes(bytes: &[u8]) -> String {
    let (seen, unseen) = bytes.split_at(bytes.len().min(ERROR_BYTES_MAX));
    clean(&String::from_utf8_lossy(seen), ERROR_BYTES_MAX, unseen.len())
}

/// The end of a handler's output, cleaned.
pub fn clean_output(bytes: &[u8]) -> String {
    let from = bytes.len().saturating_sub(OUTPUT_BYTES_MAX);
    clean(&String::from_utf8_lossy(&bytes[from..]), 4 * OUTPUT_BYTES_MAX, 0)
}

/// The first line, at most so many characters.
pub fn first_line(text: &str, characters_max: usize) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("").trim_end();
    line.chars().take(characters_max).collect()
}

fn clean(text: &str, bytes_max: usize, unseen: usize) -> String {
    let mut kept = String::with_capacity(text.len().min(bytes_max));
    let mut missing = unseen;
    for (at, c) in text.char_indices() {
        if kept.len() + 10 > bytes_max {
            missing += text.len() - at;
            break;
        }
        if is_hostile(c) {
            kept.extend(c.escape_unicode());
        } else {
            kept.push(c);
        }
    }
    if missing > 0 {
        kept.push_str(&format!("… ({missing} more bytes)"));
    }
    kept
}

/// Control characters other than line breaks and tabs, and characters that reorder what is shown.
fn is_hostile(c: char) -> bool {
    if crate::bug!(ErrorTextUncleaned) {
        return false;
    }
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{200E}' | '\u{200F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_characters_are_escaped() {
        assert_eq!(clean_error("a\0b\u{1b}[31m\r\n\tok"), "a\\u{0}b\\u{1b}[31m\\u{d}\n\tok");
        assert_eq!(clean_error("abc\u{202E}fed"), "abc\\u{202e}fed");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(
            clean_error_bytes(b"lone \xED\xA0\x80 surrogate"),
            "lone \u{FFFD}\u{FFFD}\u{FFFD} surrogate"
        );
    }

    #[test]
    fn fifty_megabytes_are_cut_and_it_says_so() {
        let text = "x".repeat(50 << 20);
        for cut in [clean_error(&text), clean_error_bytes(text.as_bytes())] {
            assert!(cut.len() <= ERROR_BYTES_MAX + 40);
            let kept = cut.find('…').unwrap();
            assert_eq!(cut[kept..], format!("… ({} more bytes)", text.len() - kept));
        }
        assert!(clean_error(&"\0".repeat(1 << 20)).len() <= ERROR_BYTES_MAX + 40);
    }

    #[test]
    fn the_first_line_is_the_first_that_says_something() {
        assert_eq!(first_line("\n  \nboom: x\n  at y", 100), "boom: x");
        assert_eq!(first_line("abcdef", 3), "abc");
    }
}
