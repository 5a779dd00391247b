//! Words with a meaning of their own in error texts: units, dates, keys, file endings.
//!
//! Only general vocabulary belongs here, never the words of one program's log.

#[rustfmt::skip]
const SIZE_UNITS: &[&str] = &[
    "kb", "mb", "gb", "tb", "pb", "kib", "mib", "gib", "tib", "byte", "bytes", "bit", "bits", "kbytes",
    "mbytes", "gbytes", "kilobytes", "megabytes", "gigabytes", "percent", "hz", "khz", "mhz", "ghz", "bps",
    "kbps", "mbps", "gbps",
];

#[rustfmt::skip]
const TIME_UNITS: &[&str] = &[
    "ns", "us", "µs", "ms", "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes", "hr",
    "hrs", "hour", "hours", "day", "days", "week", "weeks", "month", "months", "year", "years", "millis",
    "millisecond", "milliseconds", "msec", "msecs", "usec", "usecs", "microsecond", "microseconds",
    "nanosecond", "nanoseconds", "nsec", "nanos",
];

#[rustfmt::skip]
const MONTHS: &[&str] = &[
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Sept", "Oct", "Nov", "Dec", "January",
    "February", "March", "April", "June", "July", "August", "September", "October", "November", "December",
];

#[rustfmt::skip]
const WEEKDAYS: &[&str] = &[
    "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday",
    "Saturday", "Sunday",
];

#[rustfmt::skip]
const TIME_SUFFIXES: &[&str] = &[
    "AM", "PM", "am", "pm", "Z", "UTC", "GMT", "CET", "CEST", "EET", "EEST", "WET", "EST", "EDT", "CST",
    "CDT", "MST", "MDT", "PST", "PDT", "BST", "IST", "JST", "MSK",
];

/// Without hyphens and underscores.
#[rustfmt::skip]
const TERMS_WITH_DIGIT: &[&str] = &[
    "utf8", "utf16", "utf32", "utf8mb4", "ucs2", "latin1", "iso88591", "base64", "base32", "base58", "sha1",
    "sha256", "sha384", "sha512", "md5", "crc32", "crc32c", "aes128", "aes256", "ed25519", "x25519", "x509",
    "pkcs1", "pkcs8", "pkcs12", "p12", "hs256", "rs256", "es256", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "float32", "float64", "i8", "i16", "i32", "i64", "i128", "u8", "u16", "u32",
    "u64", "u128", "f32", "f64", "x86", "x8664", "amd64", "arm64", "win32", "win64", "log4j", "slf4j", "ipv4",
    "ipv6", "inet6", "http2", "http3", "h2", "h2c", "oauth2", "s3", "ec2", "k8s", "i18n", "l10n", "neo4j",
    "db2", "lz4", "bzip2", "mp3", "mp4", "sqlite3", "psycopg2", "urllib3", "boto3", "python3", "ext3", "ext4",
];

/// Endings that are also common last words of names in code (`id`, `is`, `to`) are left out.
#[rustfmt::skip]
const HOST_ENDINGS: &[&str] = &[
    "com", "net", "org", "edu", "gov", "mil", "info", "biz", "dev", "cloud", "app", "arpa", "local",
    "localdomain", "internal", "lan", "intranet", "corp", "svc", "test", "example", "cn", "hk", "uk", "de",
    "fr", "jp", "kr", "ru", "br", "nl", "eu", "ca", "au", "ch", "se", "fi", "dk", "es", "cz", "tw", "sg",
    "mx", "ar", "tr", "ua", "vn", "th",
];

const LANGUAGE_ROOTS: &[&str] =
    &["java", "javax", "jakarta", "sun", "jdk", "scala", "kotlin", "android", "akka"];

const DOMAIN_ROOTS: &[&str] =
    &["com", "org", "net", "io", "edu", "gov", "dev", "me", "de", "ch", "uk", "fr", "eu", "cn"];

#[rustfmt::skip]
const SOURCE_ENDINGS: &[&str] = &[
    "rs", "py", "java", "kt", "scala", "go", "js", "mjs", "cjs", "ts", "tsx", "jsx", "cs", "fs", "vb", "rb",
    "php", "c", "cc", "cpp", "cxx", "h", "hpp", "m", "swift", "ex", "exs", "pl",
];

#[rustfmt::skip]
const FILE_ENDINGS: &[&str] = &[
    "json", "xml", "yaml", "yml", "toml", "ini", "cfg", "conf", "config", "properties", "env", "txt", "log",
    "csv", "tsv", "md", "html", "htm", "css", "pdf", "png", "jpg", "jpeg", "gif", "svg", "doc", "docx", "xls",
    "xlsx", "zip", "gz", "tgz", "tar", "bz2", "xz", "jar", "war", "dll", "exe", "so", "dylib", "sys", "bin",
    "dat", "db", "sqlite", "sql", "pem", "crt", "key", "lock", "pid", "sock", "tmp", "bak", "parquet", "avro",
    "orc", "proto", "sh", "bat", "ps1", "pyc", "class", "plist", "wav", "mp4",
];

/// Words after `user` that say something about the user instead of naming one.
#[rustfmt::skip]
const SAID_OF_USERS: &[&str] = &[
    "not", "is", "was", "has", "had", "have", "does", "did", "do", "can", "cannot", "can't", "could", "must",
    "may", "should", "will", "would", "are", "were", "and", "or", "with", "without", "from", "for", "to",
    "in", "on", "at", "by", "of", "as", "the", "a", "an", "already", "unknown", "locked", "disabled",
    "expired", "blocked", "banned", "suspended", "deleted", "invalid", "inactive", "missing", "exists",
    "denied", "rejected", "aborted", "unauthorized", "limit", "request", "requests", "name", "id", "ids",
    "agent", "input", "account", "session", "credentials", "data", "error", "errors", "defined", "interface",
    "mode", "space", "level", "authentication", "permission", "permissions", "role", "roles", "group",
    "groups", "password", "token", "profile", "quota", "process", "database", "record", "type", "code",
    "info", "cache", "service", "lookup", "creation", "update", "registration", "login", "logout",
    "exception", "canceled", "cancelled", "interrupt", "action", "event", "activity", "present", "switch",
];

/// Words that often stand before a message which begins with a quoted value.
const ERROR_WORDS: &[&str] = &["error", "err", "errors", "cause", "exception", "fault", "panicked"];

#[rustfmt::skip]
const TEXT_KEYS: &[&str] = &[
    "msg", "message", "reason", "description", "desc", "detail", "details", "title", "error_description",
    "errormessage", "error_message", "errmsg", "faultstring", "statustext", "status_text", "hint", "summary",
];

#[rustfmt::skip]
const TELLING_KEYS: &[&str] = &[
    "code", "status", "kind", "type", "errno", "sqlstate", "errorcode", "error_code", "grpc-status",
    "statuscode", "status_code", "exitcode", "exit_code", "category", "error_type", "syscall", "errcode",
    "err_code", "__type", "errortype", "level", "severity",
];

#[rustfmt::skip]
const CODE_WORDS: &[&str] = &[
    "errno", "sqlstate", "sqlcode", "signal", "errorcode", "error_code", "exitcode", "exit_code", "hresult",
    "errcode", "err_code", "winerror", "wsaerror", "rc",
];

#[rustfmt::skip]
const CODE_KINDS: &[&str] = &[
    "error", "exit", "return", "result", "response", "reply", "failure", "reason", "close", "with", "http",
    "status", "os", "grpc", "exited", "non-zero", "nonzero", "win32", "abort",
];

const STATUS_NAMES: &[&str] = &["status", "http", "statuscode", "status_code", "response_code"];

#[rustfmt::skip]
const STATUS_VERBS: &[&str] = &[
    "returned", "responded", "answered", "got", "rejected", "failed", "error",
];

/// Words before the address of another machine, such as `connect to db:5432`.
#[rustfmt::skip]
const ADDRESS_WORDS: &[&str] = &[
    "to", "from", "at", "on", "host", "server", "connect", "connecting", "tcp", "broker", "peer", "proxy",
    "via", "through", "node", "endpoint", "address", "lookup", "dial", "leader", "with", "reach", "resolve",
    "for", "remote", "econnrefused", "etimedout", "enotfound", "econnreset", "ehostunreach", "eai_again",
    "getaddrinfo",
];

/// Whether the list holds the ASCII lower-case form of `word`; words longer than 24 bytes are in no list.
fn has(list: &[&str], word: &str) -> bool {
    let mut buffer = [0u8; 24];
    let Some(lower) = buffer.get_mut(..word.len()) else { return false };
    lower.copy_from_slice(word.as_bytes());
    lower.make_ascii_lowercase();
    list.iter().any(|known| known.as_bytes() == &*lower)
}

/// Units of size, written after a number.
pub(super) fn is_size_unit(word: &str) -> bool {
    word == "B" || has(SIZE_UNITS, word)
}

/// Units of time, written after a number.
pub(super) fn is_time_unit(word: &str) -> bool {
    word == "s" || has(TIME_UNITS, word)
}

/// Names of months as dates have them: capitalised.
pub(super) fn is_month(word: &str) -> bool {
    MONTHS.contains(&word)
}

/// Names of weekdays as dates have them: capitalised.
pub(super) fn is_weekday(word: &str) -> bool {
    WEEKDAYS.contains(&word)
}

/// What follows a time of day: half of the day or zone.
pub(super) fn is_time_suffix(word: &str) -> bool {
    TIME_SUFFIXES.contains(&word)
}

/// Technical terms that hold a digit and are still words: masking them would merge causes.
pub(super) fn is_term_with_digit(word: &str) -> bool {
    let mut bare = [0u8; 16];
    let mut length = 0;
    for byte in word.bytes().filter(|&b| b != b'-' && b != b'_') {
        let Some(slot) = bare.get_mut(length) else { return false };
        *slot = byte.to_ascii_lowercase();
        length += 1;
    }
    TERMS_WITH_DIGIT.iter().any(|term| term.as_bytes() == &bare[..length])
}

/// `true` and `false`, which are values wherever they stand.
pub(super) fn is_boolean(word: &str) -> bool {
    matches!(word, "true" | "false" | "True" | "False" | "TRUE" | "FALSE")
}

/// The last label of a host name that has no digit.
pub(super) fn is_host_ending(label: &str) -> bool {
    has(HOST_ENDINGS, label)
}

/// First labels of names in code, which read like host names backwards.
pub(super) fn is_package_root(label: &str) -> bool {
    LANGUAGE_ROOTS.contains(&label) || is_domain_root(label)
}

/// First labels of names made from a domain, as packages and applications have them.
pub(super) fn is_domain_root(label: &str) -> bool {
    DOMAIN_ROOTS.contains(&label)
}

/// Endings of files that error texts name.
pub(super) fn is_file_ending(ending: &str) -> bool {
    has(SOURCE_ENDINGS, ending) || has(FILE_ENDINGS, ending)
}

/// Words after `user` that do not name one.
pub(super) fn is_said_of_users(word: &str) -> bool {
    has(SAID_OF_USERS, word)
}

/// Keys whose value is running text, so that it is read on instead of being masked.
pub(super) fn is_text_key(word: &str) -> bool {
    has(TEXT_KEYS, word) || is_error_word(word)
}

/// Of the keys of texts those that often stand before a message which begins with a quoted value.
pub(super) fn is_error_word(word: &str) -> bool {
    has(ERROR_WORDS, word)
}

/// Keys whose value names the cause: its words are kept.
pub(super) fn is_telling_key(word: &str) -> bool {
    has(TELLING_KEYS, word) || is_text_key(word)
}

/// Words before a number that is an error's own number and not a volatile one.
pub(super) fn is_code_word(word: &str) -> bool {
    has(CODE_WORDS, word)
}

/// Words before `code` that make the number after it an error's own number.
pub(super) fn is_code_kind(word: &str) -> bool {
    has(CODE_KINDS, word)
}

/// Words that say that the number after them is an HTTP status.
pub(super) fn is_status_name(word: &str) -> bool {
    has(STATUS_NAMES, word)
}

/// Words before a number that may be an HTTP status, or may count something.
pub(super) fn is_status_verb(word: &str) -> bool {
    has(STATUS_VERBS, word)
}

/// The statuses of HTTP that tell of a failure and are in use.
pub(super) fn is_failed_status(number: &str) -> bool {
    match number.parse::<u16>() {
        Ok(status) => {
            matches!(status, 400..=418 | 421..=426 | 428 | 429 | 431 | 451 | 499..=508 | 510 | 511 | 520..=526)
        }
        Err(_) => false,
    }
}

/// Words before the address of another machine.
pub(super) fn is_address_word(word: &str) -> bool {
    has(ADDRESS_WORDS, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_in_any_case_and_long_ones_never() {
        assert!(is_size_unit("KiB") && is_time_unit("Seconds") && is_term_with_digit("UTF-8"));
        assert!(!is_time_unit(&"s".repeat(10_000)) && !is_term_with_digit(&"-8".repeat(10_000)));
    }
}
