//! Reads one line from left to right, once, into pieces.

use std::borrow::Cow;

use super::chunk;
use super::piece::{Kind, Piece, join_units_and_dates};
use super::words;

/// Bytes of a chunk that are looked at as one; a longer one without spaces is a token or a dump.
pub(super) const CHUNK_MAX: usize = 256;

/// Reads a line, of which the end may have been cut off. Every byte is visited a bounded number of times.
pub(super) fn scan(line: &str, cut: bool) -> Vec<Piece<'_>> {
    let mut pieces = Scanner::new(line, cut).read();
    if says_nothing(&pieces) {
        // `(2006, "server has gone away")`: all that is said is quoted.
        pieces = Scanner { quotations_speak: true, ..Scanner::new(line, cut) }.read();
    }
    join_units_and_dates(&mut pieces);
    pieces
}

/// Whether nothing but quotations could tell the cause.
fn says_nothing(pieces: &[Piece<'_>]) -> bool {
    pieces.contains(&Piece::Volatile(Kind::Value))
        && pieces.iter().all(|piece| !matches!(piece, Piece::Word(word) if !words::is_error_word(word)))
}

/// The state of reading one line.
pub(super) struct Scanner<'t> {
    pub(super) line: &'t str,
    /// Whether the line's end is missing, so that an open quotation may have closed behind it.
    cut: bool,
    pub(super) at: usize,
    pub(super) pieces: Vec<Piece<'t>>,
    /// The last two words, the nearest first, with nothing volatile between them and here.
    pub(super) before: [&'t str; 2],
    /// Whether quotations of several words are read on wherever they stand.
    quotations_speak: bool,
    /// Braces that are open here.
    braces: usize,
    /// Where a quotation that is read on closes.
    closes_at: Option<usize>,
    /// For each kind of quote, the stretch known to have no closing one, so that none is searched twice.
    unclosed: [(usize, usize); 3],
}

impl<'t> Scanner<'t> {
    fn new(line: &'t str, cut: bool) -> Self {
        Self {
            line,
            cut,
            at: 0,
            pieces: Vec::new(),
            before: [""; 2],
            quotations_speak: false,
            braces: 0,
            closes_at: None,
            unclosed: [(usize::MAX, 0); 3],
        }
    }

    fn read(mut self) -> Vec<Piece<'t>> {
        while self.at < self.line.len() {
            self.step();
        }
        self.pieces
    }

    fn step(&mut self) {
        let Some(c) = self.line[self.at..].chars().next() else { return };
        match c {
            '\u{1b}' => self.escape_sequence(),
            c if c.is_whitespace() || c.is_control() || c == '\u{fffd}' => {
                self.at += c.len_utf8();
                self.pieces.push(Piece::Space);
            }
            '\\' if self.escaped_control() => {}
            '"' | '\'' | '`' | '“' | '‘' | '«' => self.quote(c),
            '=' => self.equals(),
            '<' if self.placeholder() => {}
            c if chunk::belongs(c) => self.chunk(),
            c => self.mark(c),
        }
    }

    pub(super) fn mark(&mut self, mark: char) {
        match mark {
            '{' => self.braces += 1,
            '}' => self.braces = self.braces.saturating_sub(1),
            _ => {}
        }
        self.at += mark.len_utf8();
        self.pieces.push(Piece::Mark(mark));
    }

    pub(super) fn word(&mut self, word: &'t str) {
        self.before = [word, self.before[0]];
        self.pieces.push(Piece::Word(Cow::Borrowed(word)));
    }

    pub(super) fn volatile(&mut self, kind: Kind) {
        self.before = ["", ""];
        self.pieces.push(Piece::Volatile(kind));
    }

    /// A placeholder of a text that has been normalised before.
    fn placeholder(&mut self) -> bool {
        let rest = &self.line[self.at..];
        let Some(kind) = Kind::ALL.into_iter().find(|kind| rest.starts_with(kind.placeholder())) else {
            return false;
        };
        self.at += kind.placeholder().len();
        self.volatile(kind);
        true
    }

    /// Terminal colours: `ESC [ 3 1 m`.
    fn escape_sequence(&mut self) {
        let rest = &self.line.as_bytes()[self.at + 1..];
        self.at += 1;
        if rest.first() == Some(&b'[') {
            let parameters =
                rest[1..].iter().take(16).take_while(|b| b.is_ascii_digit() || **b == b';').count();
            self.at += 1 + parameters;
            if rest.get(1 + parameters).is_some_and(u8::is_ascii_alphabetic) {
                self.at += 1;
            }
        }
    }

    /// `\\u{1b}[31m`, as a control character looks once the text has been cleaned.
    fn escaped_control(&mut self) -> bool {
        let Some(rest) = self.line[self.at..].strip_prefix("\\u{") else { return false };
        let digits = rest.bytes().take(6).take_while(u8::is_ascii_hexdigit).count();
        if digits == 0 || rest.as_bytes().get(digits) != Some(&b'}') {
            return false;
        }
        self.at += "\\u{".len() + digits;
        self.escape_sequence();
        self.pieces.push(Piece::Space);
        true
    }

    /// A quotation is a value unless it is a key or running text.
    fn quote(&mut self, open: char) {
        let start = self.at + open.len_utf8();
        if self.closes_at == Some(self.at) {
            self.closes_at = None;
            return self.mark(open);
        }
        let opens = !self.line[..self.at].ends_with(|c: char| c.is_alphanumeric());
        let Some(end) = opens.then(|| self.closing(open, start)).flatten() else {
            if self.cut && opens && open != '\'' {
                self.at = self.line.len();
                return self.volatile(Kind::Value);
            }
            return self.mark(open);
        };
        let after = &self.line[end..];
        let after = &after[after.chars().next().map_or(0, char::len_utf8)..];
        let inside = &self.line[start..end];
        if self.reads_on(inside)
            || is_request(inside)
            || (self.in_object() && is_key(inside) && after.trim_start().starts_with(':'))
        {
            // A key's own quotes are not searched again; a text's inner quotes are.
            self.closes_at = Some(end);
            return self.mark(open);
        }
        self.volatile(Kind::Value);
        self.at = self.line.len() - after.len();
    }

    /// Whether a member of an object can begin here.
    fn in_object(&self) -> bool {
        let before = self.pieces.iter().rfind(|piece| !matches!(piece, Piece::Space));
        self.braces > 0 && matches!(before, Some(Piece::Mark('{' | ',')))
    }

    /// Whether a quotation here is running text: `msg="…"`, `"error": "…"`, `panicked at '…'`, `Error('…')`.
    fn reads_on(&self, inside: &str) -> bool {
        if self.closes_at.is_some() {
            return false;
        }
        if self.quotations_speak && inside.trim().contains(' ') {
            return true;
        }
        let [word, earlier] = self.before;
        let mut back = self.pieces.iter().rev().filter(|piece| !matches!(piece, Piece::Space));
        match (back.next(), back.next()) {
            (Some(Piece::Mark('=')), _) => words::is_telling_key(word),
            (Some(Piece::Mark(':')), _) if self.braces > 0 => words::is_telling_key(word),
            // `error: 'x' is not a colour`: what is quoted here is rather a value.
            (Some(Piece::Mark(':')), _) => words::is_text_key(word) && !words::is_error_word(word),
            (Some(Piece::Mark('(')), _) => word.ends_with("Error") || word.ends_with("Exception"),
            _ => word == "at" && earlier == "panicked",
        }
    }

    /// Where the quotation that begins at `start` ends. One that begins with a backtick may end with an
    /// apostrophe, as in older tools.
    fn closing(&mut self, open: char, start: usize) -> Option<usize> {
        let (close, kind) = match open {
            '"' => (b'"', 0),
            '`' => (b'`', 1),
            '\'' => (b'\'', 2),
            '“' => return self.closing_pair('”', start),
            '‘' => return self.closing_pair('’', start),
            _ => return self.closing_pair('»', start),
        };
        let limit = self.closes_at.unwrap_or(self.line.len());
        let (from, until) = self.unclosed[kind];
        if start >= from && limit <= until {
            return None;
        }
        let bytes = &self.line.as_bytes()[..limit];
        let mut at = start;
        while at < bytes.len() {
            let letter_follows = bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric);
            match bytes[at] {
                b'\\' => at += 1,
                b'\'' if close != b'"' && !letter_follows => return Some(at),
                byte if byte == close && close != b'\'' => return Some(at),
                _ => {}
            }
            at += 1;
        }
        self.unclosed[kind] = (start, limit);
        None
    }

    /// The end of a quotation in typographic quotes, which is short or none.
    fn closing_pair(&self, close: char, start: usize) -> Option<usize> {
        self.line[start..].char_indices().take(256).find(|(_, c)| *c == close).map(|(at, _)| start + at)
    }

    /// `key=value` without spaces: the value is volatile unless the key tells the cause.
    fn equals(&mut self) {
        let bytes = self.line.as_bytes();
        let touches_key =
            matches!(self.pieces.last(), Some(Piece::Word(_))) && bytes[self.at - 1].is_ascii_alphanumeric();
        self.mark('=');
        let key = self.before[0];
        let next = self.line[self.at..].chars().next();
        let tight =
            touches_key && !matches!(next, Some('=' | '>' | '"' | '\'' | '`' | '[' | '(' | '{' | '<'));
        if !tight || words::is_telling_key(key) {
            return;
        }
        let rest = &self.line[self.at..];
        let end = rest.find(|c: char| {
            c.is_whitespace() || matches!(c, ',' | ';' | ')' | ']' | '}' | '>' | '|' | '&' | '"' | '\'')
        });
        self.at += end.unwrap_or(rest.len());
        self.volatile(Kind::Value);
    }

    fn chunk(&mut self) {
        let rest = &self.line[self.at..];
        let bytes = rest.as_bytes();
        let mut length = 0;
        let mut ascii = true;
        for (at, c) in rest.char_indices() {
            ascii &= c.is_ascii();
            if at >= CHUNK_MAX && !ascii {
                break;
            }
            let apostrophe = c == '\''
                && at > 0
                && bytes[at - 1].is_ascii_alphabetic()
                && bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic);
            let escape = at > 0 && c == '\\' && rest[at..].starts_with("\\u{");
            if escape || !(chunk::belongs(c) || apostrophe) {
                break;
            }
            length = at + c.len_utf8();
        }
        chunk::read(self, length);
    }

    /// Goes on behind the next `length` bytes.
    pub(super) fn advance(&mut self, length: usize) -> &'t str {
        let taken = &self.line[self.at..self.at + length];
        self.at += length;
        taken
    }
}

/// Whether the inside of a quotation is a request, whose method matters: `"GET /orders HTTP/1.1"`.
fn is_request(inside: &str) -> bool {
    let methods = ["GET ", "POST ", "PUT ", "DELETE ", "PATCH ", "HEAD ", "OPTIONS ", "CONNECT ", "TRACE "];
    methods.iter().any(|method| inside.starts_with(method))
}

/// Whether the inside of a quotation can be the key of a JSON member.
fn is_key(inside: &str) -> bool {
    (1..=64).contains(&inside.len())
        && inside.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'$' | b'@'))
        && !inside.bytes().next().is_some_and(|b| b.is_ascii_digit())
}
