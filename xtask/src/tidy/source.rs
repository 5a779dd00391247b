//! Rust text without its comments and literals, so that rules about code do not trip over prose.

/// The same text with every comment, string and character literal blanked out. Offsets and line
/// numbers stay what they were.
pub(super) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(text, at).unwrap_or(at);
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).unwrap_or_default()
}

/// The line, counted from 1, of a byte offset.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Where the comment or literal that starts at `at` ends, if one does.
fn literal_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text.as_bytes()[at..];
    let length = match rest {
        [b'/', b'/', ..] => rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => 1 + quoted(&rest[1..], b'"'),
        [b'r', b'"' | b'#', ..] => raw_string(rest)?,
        [b'\'', b'\\', ..] => 1 + quoted(&rest[1..], b'\''),
        [b'\'', ..] => {
            // A character literal is one character between quotes; otherwise it is a lifetime.
            let character = text[at + 1..].chars().next()?.len_utf8();
            (rest.get(1 + character) == Some(&b'\'')).then_some(character + 2)?
        }
        _ => return None,
    };
    Some(at + length)
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length up to and including the closing quote.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    let start = 1 + hashes;
    if rest.get(start) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let inside = &rest[start + 1..];
    let end = inside.windows(close.len()).position(|window| window == close);
    Some(end.map_or(rest.len(), |end| start + 1 + end + close.len()))
}

#[cfg(test)]
mod tests {
    use super::{code_only, line_of};

    fn words(text: &str) -> Vec<String> {
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.lines().count(), text.lines().count());
        code.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn comments_are_blanked() {
        assert_eq!(words("a // b\nc /* d /* e */ f\n */ g\n/// h\n"), ["a", "c", "g"]);
    }

    #[test]
    fn strings_are_blanked_with_their_escapes_and_hashes() {
        assert_eq!(
            words(r###"a "b \" // c" d r"e\" f r#"g " h"# i b"j" k"###),
            ["a", "d", "f", "i", "b", "k"]
        );
        assert_eq!(words("a \"ä\nö\" b"), ["a", "b"]);
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_are_kept() {
        assert_eq!(words(r#"a '"' b '\'' c '{' d 'ß' e"#), ["a", "b", "c", "d", "e"]);
        assert_eq!(words("fn f<'a>(x: &'a str)"), ["fn", "f<'a>(x:", "&'a", "str)"]);
        assert_eq!(words("r#type"), ["r#type"]);
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_text() {
        for text in ["\"abc", "\"abc\\", "r#\"abc\"", "/* abc", "'\\", "'"] {
            words(text);
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!((line_of("a\nb\n", 0), line_of("a\nb\n", 2), line_of("a\nb\n", 4)), (1, 2, 3));
    }
}
