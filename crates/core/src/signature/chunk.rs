//! Decides what a run of characters without spaces is: a word, a number, an address, a path.

use std::borrow::Cow;

use super::piece::{Kind, Piece};
use super::scan::{CHUNK_MAX, Scanner};
use super::token;
use super::words;

/// Whether `c` can be inside a chunk; all other characters are punctuation.
pub(super) fn belongs(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '\\' | ':' | '@' | '$' | '%' | '+' | '~' | '#')
}

/// Reads the chunk of `length` bytes that begins here.
pub(super) fn read(scanner: &mut Scanner<'_>, length: usize) {
    let line = scanner.line;
    let mut end = scanner.at + length;
    if length > CHUNK_MAX {
        if line[scanner.at..end].is_ascii() {
            scanner.at = end;
            return scanner.volatile(Kind::Id);
        }
        end = scanner.at + CHUNK_MAX;
        while !line.is_char_boundary(end) {
            end -= 1;
        }
    }
    if &line[scanner.at..end] == "/" {
        scanner.at = end;
        return scanner.volatile(Kind::Path);
    }
    leading_marks(scanner, end);
    let core = line[scanner.at.min(end)..end]
        .trim_end_matches(['.', ':', '-', '/', '\\', '%', '@', '#', '+', '~', '$', '_']);
    let core_end = end - (line[scanner.at.min(end)..end].len() - core.len());
    while scanner.at < core_end {
        part(scanner, core_end);
    }
    while scanner.at < end {
        let Some(c) = line[scanner.at..].chars().next() else { return };
        scanner.mark(c);
    }
}

/// Punctuation before the chunk's own text: `:`, `#`, `--`; not a sign, not the start of a path.
fn leading_marks(scanner: &mut Scanner<'_>, end: usize) {
    while let Some(c) = scanner.line[scanner.at..end].chars().next() {
        let mut following = scanner.line[scanner.at + c.len_utf8()..end].chars();
        let next = following.next();
        let starts = match c {
            '/' => next
                .is_some_and(|n| n.is_alphanumeric() || matches!(n, '_' | '.' | '-' | '~' | '$' | '@' | '%')),
            '\\' => next == Some('\\'),
            '~' => next == Some('/'),
            '.' => matches!(next, Some('/' | '\\')) || (next == Some('.') && following.next() == Some('/')),
            '-' | '+' => next.is_some_and(|n| n.is_ascii_digit()),
            '_' => next.is_some_and(|n| n.is_alphanumeric() || n == '_'),
            ':' => next == Some(':') && following.next().is_some_and(|n| n.is_ascii_hexdigit()),
            c => c.is_alphanumeric(),
        };
        if starts {
            return;
        }
        scanner.mark(c);
    }
}

/// Reads one part of the chunk that ends at `end`: up to a colon that separates, or all of it.
fn part(scanner: &mut Scanner<'_>, end: usize) {
    let core = &scanner.line[scanner.at..end];
    if core.starts_with(':') && !token::is_ipv6(core) {
        return scanner.mark(':');
    }
    if scanner.before == ["at", "panicked"] {
        return panic_place(scanner, core);
    }
    if let Some(length) = url(scanner, core) {
        scanner.advance(length);
        return scanner.volatile(Kind::Url);
    }
    if let Some(length) = token::windows_path(core) {
        scanner.advance(length);
        return scanner.volatile(Kind::Path);
    }
    if let Some(length) = token::ip_and_port(core) {
        scanner.advance(length);
        return scanner.volatile(Kind::Ip);
    }
    if let Some(length) = token::unix_path(core) {
        scanner.advance(length);
        query(scanner);
        return scanner.volatile(Kind::Path);
    }
    if !core.contains(':') {
        scanner.advance(core.len());
        return simple(scanner, core);
    }
    with_colon(scanner, core);
}

/// `panicked at src/orders.rs:10:5`: without a trace the file is all that tells one panic from another.
fn panic_place<'t>(scanner: &mut Scanner<'t>, core: &'t str) {
    let length = token::path_end(core);
    scanner.advance(length);
    let path = core[..length].split(':').next().unwrap_or(core);
    scanner.word(path.rsplit(['/', '\\']).next().unwrap_or(path));
}

/// A part with a colon inside: a time, an address, a name in code, a key and its value.
fn with_colon<'t>(scanner: &mut Scanner<'t>, core: &'t str) {
    let kind = if token::is_time(core) {
        Some(Kind::Time)
    } else if token::is_ipv6(core) {
        Some(Kind::Ip)
    } else {
        None
    };
    if let Some(kind) = kind {
        scanner.advance(core.len());
        return scanner.volatile(kind);
    }
    if core.contains("::") && core.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        scanner.advance(core.len());
        return scanner.word(token::without_symbol_hash(core));
    }
    let left = &core[..core.find(':').unwrap_or(core.len())];
    if token::volatile_kind(left) == Some(Kind::Path) {
        scanner.advance(token::path_end(core));
        return scanner.volatile(Kind::Path);
    }
    let right = &core[left.len() + 1..];
    let port = right.bytes().take_while(u8::is_ascii_digit).count();
    let ends = right.as_bytes().get(port).is_none_or(|b| !b.is_ascii_alphanumeric());
    let length = left.len() + 1 + port;
    if ends && (2..=5).contains(&port) && is_host_before_port(scanner, left) && !is_measured(scanner, length)
    {
        scanner.advance(length);
        return scanner.volatile(Kind::Host);
    }
    scanner.advance(left.len());
    simple(scanner, left);
}

/// Whether a unit follows the next `length` bytes, so that they end in a measure and not in a port.
fn is_measured(scanner: &Scanner<'_>, length: usize) -> bool {
    let Some(next) = scanner.line[scanner.at + length..].strip_prefix(' ') else { return false };
    let word = &next[..next.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(next.len())];
    words::is_time_unit(word) || words::is_size_unit(word)
}

fn is_host_before_port(scanner: &Scanner<'_>, left: &str) -> bool {
    let name = left.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    let dotted = left.rsplit_once('.').is_some_and(|(_, ending)| !words::is_file_ending(ending));
    let lower = !left.bytes().any(|b| b.is_ascii_uppercase());
    name && (left == "localhost" || (dotted && lower) || words::is_address_word(scanner.before[0]))
}

/// The length of an address with a scheme, which may go on behind the chunk.
fn url(scanner: &Scanner<'_>, core: &str) -> Option<usize> {
    let scheme = core.find("://")?;
    if !core[..scheme].bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'.' | b'-' | b':')) {
        return None;
    }
    let rest = &scanner.line[scanner.at..];
    let end = rest.find(|c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(c, '"' | '\'' | '`' | '<' | '>' | ')' | ']' | '}' | '|')
    });
    let length = end.unwrap_or(rest.len());
    Some(rest[..length].trim_end_matches(['.', ',', ':', ';', '!', '?']).len().max(1))
}

/// `?page=2&size=10` behind a path.
fn query(scanner: &mut Scanner<'_>) {
    let rest = &scanner.line[scanner.at..];
    if rest.starts_with('?') {
        let length =
            rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | ')'));
        scanner.at += length.unwrap_or(rest.len());
    }
}

/// A part without colon.
fn simple<'t>(scanner: &mut Scanner<'t>, core: &'t str) {
    if core.contains('@') {
        return with_at_sign(scanner, core);
    }
    if let Some(protocol) = core.split_once('/').map(|(name, _)| name).filter(|name| *name == "HTTP") {
        return scanner.word(protocol);
    }
    if is_error_code(scanner, core) {
        return scanner.word(core);
    }
    if is_named_user(scanner, core) {
        return scanner.volatile(Kind::User);
    }
    if let Some(kind) = token::volatile_kind(core) {
        return scanner.volatile(kind);
    }
    if !core.bytes().any(|b| b.is_ascii_digit()) {
        return scanner.word(core);
    }
    let called = scanner.line[scanner.at..].starts_with('(');
    if words::is_term_with_digit(core) || (called && token::is_function_name(core)) {
        return scanner.word(core);
    }
    match token::code_name(core) {
        Some(name) => {
            scanner.before = ["", ""];
            scanner.pieces.push(Piece::Word(Cow::Owned(name)));
        }
        None => scanner.volatile(Kind::Id),
    }
}

/// `name@host`, or `Class@1f2e3d` as the JVM prints an object.
fn with_at_sign<'t>(scanner: &mut Scanner<'t>, core: &'t str) {
    let (left, right) = core.split_once('@').unwrap_or((core, ""));
    let object = right.len() >= 4
        && right.bytes().all(|b| b.is_ascii_hexdigit())
        && left.bytes().any(|b| b.is_ascii_uppercase())
        && !left.contains('@');
    if object {
        simple(scanner, left);
        return scanner.volatile(Kind::Id);
    }
    scanner.volatile(Kind::Email);
}

/// Whether the number (or code) here is the error's own: `exit code 137`, `status 503`, `os error 2`.
fn is_error_code(scanner: &Scanner<'_>, core: &str) -> bool {
    let [word, earlier] = scanner.before;
    if word.is_empty() || core.len() > 10 || !core.bytes().any(|b| b.is_ascii_digit()) {
        return false;
    }
    if words::is_code_word(word) {
        return true;
    }
    let assigned = matches!(last_content(scanner), Some(Piece::Mark('=' | ':')));
    let coded = matches!(word, "code" | "Code") && (assigned || words::is_code_kind(earlier));
    if coded && token::is_code(core) {
        return true;
    }
    let digits = core.strip_prefix('-').unwrap_or(core);
    if digits.len() > 5 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let own = match word {
        "code" | "Code" => coded,
        "status" => matches!(earlier, "exit" | "exited" | "Exit"),
        "error" => matches!(earlier, "os" | "system" | "socket"),
        _ => false,
    };
    own || is_failed_http_status(scanner, core)
}

/// `status 503`, `HTTP 404`, `returned 502`: the status of a failure that does not count something.
fn is_failed_http_status(scanner: &Scanner<'_>, core: &str) -> bool {
    if core.len() != 3 || !words::is_failed_status(core) {
        return false;
    }
    let [word, earlier] = scanner.before;
    if words::is_status_name(word) {
        return true;
    }
    let spoken = words::is_status_verb(word) || (word == "with" && words::is_status_verb(earlier));
    let next = scanner.line[scanner.at..].trim_start_matches(' ');
    let next_word = &next[..next.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(next.len())];
    let prepositions = ["from", "for", "on", "while", "when", "after", "by", "at", "in", "and", "to"];
    let counts =
        next_word.starts_with(|c: char| c.is_ascii_lowercase()) && !prepositions.contains(&next_word);
    spoken && !counts
}

fn is_named_user(scanner: &Scanner<'_>, core: &str) -> bool {
    let [word, earlier] = scanner.before;
    let named = matches!(word, "user" | "User" | "username" | "USER" | "Username");
    let logged_in =
        word == "for" && matches!(earlier, "password" | "publickey" | "login" | "logon" | "Login");
    (named || logged_in)
        && matches!(last_content(scanner), Some(Piece::Word(_) | Piece::Mark(':' | '=')))
        && !words::is_said_of_users(core)
}

fn last_content<'s, 't>(scanner: &'s Scanner<'t>) -> Option<&'s Piece<'t>> {
    scanner.pieces.iter().rfind(|piece| !matches!(piece, Piece::Space))
}
