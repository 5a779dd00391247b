//! Shapes of single tokens: numbers, addresses, paths, ids, names in code.

use super::piece::Kind;
use super::words;

/// What a token is that is volatile by its shape alone; words, terms and other ids answer `None`.
pub(super) fn volatile_kind(token: &str) -> Option<Kind> {
    if token.contains('/') || token.contains('\\') {
        return slashed(token);
    }
    let has_digit = token.bytes().any(|b| b.is_ascii_digit());
    if has_digit {
        return number_kind(token)
            .or_else(|| is_date(token).then_some(Kind::Time))
            .or_else(|| is_hex(token).then_some(Kind::Id))
            .or_else(|| is_file_name(token).then_some(Kind::Path));
    }
    if words::is_boolean(token) {
        return Some(Kind::Boolean);
    }
    if is_hex(token) || is_noise(token) || is_application(token) {
        return Some(Kind::Id);
    }
    if is_host_name(token) {
        return Some(Kind::Host);
    }
    is_file_name(token).then_some(Kind::Path)
}

/// A token with slashes inside: a path, unless it is a pair of words such as `and/or`.
fn slashed(token: &str) -> Option<Kind> {
    let slashes = token.bytes().filter(|b| matches!(b, b'/' | b'\\')).count();
    let digit = token.bytes().any(|b| b.is_ascii_digit());
    if slashes > 1 || digit || token.contains(['.', '\\']) {
        return Some(Kind::Path);
    }
    None
}

/// Numbers with sign, fraction, exponent, per cent or a unit: `-3`, `1.5e-3`, `99%`, `250ms`, `1h5m`, `8KiB`.
fn number_kind(token: &str) -> Option<Kind> {
    let body = token.trim_start_matches(['-', '+']);
    if !body.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let numeric = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '+' | '%');
    let suffix = body.trim_start_matches(numeric);
    if suffix.is_empty() {
        return Some(if is_date(token) { Kind::Time } else { Kind::Number });
    }
    if matches!(suffix, "m" | "h" | "d" | "w") || words::is_time_unit(suffix) {
        return Some(Kind::Duration);
    }
    if matches!(suffix, "K" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi") || words::is_size_unit(suffix) {
        return Some(Kind::Size);
    }
    if body.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'd' | b'h' | b'm' | b's')) {
        return Some(Kind::Duration);
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    exponent.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+')).then_some(Kind::Number)
}

/// `2024-01-31`, `2024.01.31`, `20240131T120000Z`.
fn is_date(token: &str) -> bool {
    let mut fields = token.split(['-', '.', '_']);
    let field = |digits: usize, part: Option<&str>| {
        part.is_some_and(|p| (1..=digits).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit()))
    };
    let year = fields.next();
    year.is_some_and(|y| y.len() == 4) && field(4, year) && field(2, fields.next()) && field(2, fields.next())
        || (token.len() >= 15
            && token.as_bytes()[8] == b'T'
            && token.bytes().take(8).all(|b| b.is_ascii_digit()))
}

/// A time of day, or a date and a time, in digits: `10:22`, `2024-01-31T10:22:33.123+01:00`.
pub(super) fn is_time(token: &str) -> bool {
    let bytes = token.as_bytes();
    bytes[0].is_ascii_digit()
        && bytes
            .iter()
            .all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-' | b'+' | b'T' | b'Z' | b'/' | b'_'))
        && bytes.windows(3).any(|w| w[0].is_ascii_digit() && w[1] == b':' && w[2].is_ascii_digit())
}

/// At least 8 hexadecimal digits, in groups or not: a hash, a UUID, a memory address.
fn is_hex(token: &str) -> bool {
    let body = token.trim_start_matches(['-', '+']);
    let one_case =
        !(body.bytes().any(|b| b.is_ascii_lowercase()) && body.bytes().any(|b| b.is_ascii_uppercase()));
    one_case
        && body.len() >= 8
        && body.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        && !body.starts_with('-')
}

/// Letters in an order that no writer has: a long token in both cases with few runs of small letters.
pub(super) fn is_noise(token: &str) -> bool {
    let one_case =
        !(token.bytes().any(|b| b.is_ascii_lowercase()) && token.bytes().any(|b| b.is_ascii_uppercase()));
    let plain = token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+'));
    if token.len() < 20 || one_case || !plain {
        return false;
    }
    let runs = token.as_bytes().split(|b| !b.is_ascii_lowercase()).map(<[u8]>::len);
    let readable: usize = runs.filter(|length| *length >= 3).sum();
    readable * 100 < token.len() * 35
}

/// A host name without digits: lower-case labels with a known ending, not a package of code.
fn is_host_name(token: &str) -> bool {
    let Some((front, ending)) = token.rsplit_once('.') else { return false };
    let first = front.split('.').next().unwrap_or_default();
    words::is_host_ending(ending)
        && !words::is_package_root(first)
        && !first.is_empty()
        && token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
        && !front.bytes().any(|b| b.is_ascii_uppercase())
}

/// `com.acme.shop`: the name of an application or package. One of a class ends in a capital word.
fn is_application(token: &str) -> bool {
    let first = token.split('.').next().unwrap_or_default();
    words::is_domain_root(first)
        && token.bytes().filter(|b| *b == b'.').count() >= 2
        && token.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'.' | b'-' | b'_'))
}

/// `name.ending` with an ending that files have.
fn is_file_name(token: &str) -> bool {
    token.rsplit_once('.').is_some_and(|(front, ending)| !front.is_empty() && words::is_file_ending(ending))
}

/// The length of `1.2.3.4`, `/1.2.3.4`, `name/1.2.3.4` or `1.2.3.4:80` at the start of the text.
pub(super) fn ip_and_port(text: &str) -> Option<usize> {
    let mut start = 0;
    if let Some(slash) = text.find('/') {
        let host =
            text[..slash].bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        if host && ip_v4(&text[slash + 1..]).is_some() {
            start = slash + 1;
        }
    }
    let mut end = start + ip_v4(&text[start..])?;
    if let Some(rest) = text[end..].strip_prefix([':', '#', '/']) {
        let port = rest.bytes().take_while(u8::is_ascii_digit).count();
        let ends = rest.as_bytes().get(port).is_none_or(|b| !b.is_ascii_alphanumeric());
        if port > 0 && ends {
            end += 1 + port;
        }
    }
    Some(end)
}

/// The length of four numbers with dots between at the start of the text.
fn ip_v4(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    for field in 0..4 {
        let digits = bytes[at..].iter().take(4).take_while(|b| b.is_ascii_digit()).count();
        if !(1..=3).contains(&digits) {
            return None;
        }
        at += digits;
        if field < 3 {
            if bytes.get(at) != Some(&b'.') {
                return None;
            }
            at += 1;
        }
    }
    let goes_on = bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        || (bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric));
    (!goes_on).then_some(at)
}

/// An address of version 6 or of a network card.
pub(super) fn is_ipv6(token: &str) -> bool {
    let colons = token.bytes().filter(|b| *b == b':').count();
    let address = token.split('%').next().unwrap_or_default();
    colons >= 2
        && token.len() <= 64
        && address.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
        && (address.contains("::") || colons >= 5)
        && address.bytes().any(|b| b.is_ascii_hexdigit())
}

/// The length of a path with a drive or a server: `C:\x`, `\\server\x`.
pub(super) fn windows_path(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let drive = bytes.len() >= 3
        && bytes[0].is_ascii_alphabetic()
        && bytes[1] == b':'
        && matches!(bytes[2], b'\\' | b'/');
    if drive {
        return Some(2 + path_end(&text[2..]));
    }
    text.starts_with("\\\\").then(|| path_end(text))
}

/// The length of a path that starts at the root, here or at home.
pub(super) fn unix_path(text: &str) -> Option<usize> {
    let starts =
        text.starts_with('/') || text.starts_with("./") || text.starts_with("../") || text.starts_with("~/");
    starts.then(|| path_end(text))
}

/// Where a path ends: before a colon, unless a line number follows it.
pub(super) fn path_end(text: &str) -> usize {
    let mut end = text.find(':').unwrap_or(text.len());
    while let Some(rest) = text[end..].strip_prefix(':') {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || rest.as_bytes().get(digits).is_some_and(u8::is_ascii_alphanumeric) {
            break;
        }
        end += 1 + digits;
    }
    end
}

/// `module::function::h0123456789abcdef` without the compiler's hash.
pub(super) fn without_symbol_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((front, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => front,
        _ => name,
    }
}

/// A name with digits in front of `(`: a function, unless its digits are an id's.
pub(super) fn is_function_name(token: &str) -> bool {
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && digits <= 3 && !token.contains('-')
}

/// An error's code: capitals and a few digits, such as `ORA-00942` or `E1001`.
pub(super) fn is_code(token: &str) -> bool {
    let digits = token.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let digits = digits.strip_prefix(['-', '_']).unwrap_or(digits);
    (1..=5).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A name in code that happens to hold digits, without them: `HttpServer2$Filter`, `com.acme.Job12`.
pub(super) fn code_name(token: &str) -> Option<String> {
    let allowed = token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'$' | b'_'));
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    let long = token.len() >= 30 && !token.contains(['.', '$', '_']);
    if !allowed
        || long
        || is_noise(token)
        || digits > 3
        || !token.starts_with(|c: char| c.is_ascii_alphabetic())
    {
        return None;
    }
    let humps = token
        .as_bytes()
        .windows(3)
        .filter(|w| w[0].is_ascii_uppercase() && w[1].is_ascii_lowercase() && w[2].is_ascii_lowercase());
    let humps = humps.count() + usize::from(token.starts_with(|c: char| c.is_ascii_lowercase()));
    (humps >= 2).then(|| token.chars().filter(|c| !c.is_ascii_digit()).collect())
}
