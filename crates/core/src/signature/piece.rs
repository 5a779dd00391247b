//! What a line is made of once it has been read: words, placeholders and punctuation.

use std::borrow::Cow;

use super::words;

/// Words of one line that count; a longer line is a dump, whose length varies.
const WORDS_MAX: usize = 64;

/// What kind of volatile part a placeholder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    Duration,
    Email,
    Host,
    Id,
    Ip,
    Number,
    Path,
    Size,
    Time,
    Url,
    User,
    Value,
}

impl Kind {
    /// All kinds.
    pub(super) const ALL: [Self; 13] = [
        Self::Boolean,
        Self::Duration,
        Self::Email,
        Self::Host,
        Self::Id,
        Self::Ip,
        Self::Number,
        Self::Path,
        Self::Size,
        Self::Time,
        Self::Url,
        Self::User,
        Self::Value,
    ];

    /// The placeholder that stands in the normalised text.
    pub(super) const fn placeholder(self) -> &'static str {
        match self {
            Self::Boolean => "<bool>",
            Self::Duration => "<duration>",
            Self::Email => "<email>",
            Self::Host => "<host>",
            Self::Id => "<id>",
            Self::Ip => "<ip>",
            Self::Number => "<num>",
            Self::Path => "<path>",
            Self::Size => "<size>",
            Self::Time => "<time>",
            Self::Url => "<url>",
            Self::User => "<user>",
            Self::Value => "<val>",
        }
    }
}

/// One part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    Word(Cow<'t, str>),
    Volatile(Kind),
    Mark(char),
    Space,
}

/// Takes units into the number before them and names of months and zones into the date beside them.
pub(super) fn join_units_and_dates(pieces: &mut Vec<Piece<'_>>) {
    let mut joined: Vec<Piece<'_>> = Vec::with_capacity(pieces.len());
    for mut piece in pieces.drain(..) {
        if let Piece::Word(word) = &piece
            && let Some(kind) = joined_kind(word, &joined)
        {
            set_last_volatile(&mut joined, kind);
            continue;
        }
        if let Piece::Volatile(kind) = &mut piece
            && matches!(kind, Kind::Number | Kind::Time)
        {
            if take_date_words(&mut joined) {
                *kind = Kind::Time;
            } else if continues_time(&joined) {
                set_last_volatile(&mut joined, Kind::Time);
                continue;
            }
        }
        joined.push(piece);
    }
    *pieces = joined;
}

/// Whether a number here goes on with the time before it: `2006 15:04`, `15:04:05,123`.
fn continues_time(joined: &[Piece<'_>]) -> bool {
    let fraction = matches!(joined.last(), Some(Piece::Mark(',')));
    last_volatile(joined, if fraction { "," } else { "" }) == Some(Kind::Time)
}

/// What the number or time before a word becomes together with it, if the word belongs to it.
fn joined_kind(word: &str, before: &[Piece<'_>]) -> Option<Kind> {
    if let Some(kind) = unit_of(word, last_volatile(before, "")) {
        return Some(kind);
    }
    let before = last_volatile(before, "-/")?;
    (words::is_month(word) && matches!(before, Kind::Number | Kind::Time)).then_some(Kind::Time)
}

/// What a number or time becomes together with the unit or zone after it.
fn unit_of(word: &str, before: Option<Kind>) -> Option<Kind> {
    match before? {
        Kind::Number | Kind::Size | Kind::Duration if words::is_size_unit(word) => Some(Kind::Size),
        Kind::Number | Kind::Size | Kind::Duration if words::is_time_unit(word) => Some(Kind::Duration),
        Kind::Time if words::is_time_suffix(word) => Some(Kind::Time),
        _ => None,
    }
}

/// Removes `Mon, Jan ` from the end, if it is there: a number or time is about to follow.
fn take_date_words(joined: &mut Vec<Piece<'_>>) -> bool {
    let mut keep = joined.len();
    let mut month_seen = false;
    while let Some(end) = content_end(&joined[..keep], ",-/") {
        let Piece::Word(word) = &joined[end] else { break };
        if !month_seen && words::is_month(word) {
            month_seen = true;
        } else if !words::is_weekday(word) {
            break;
        }
        keep = end;
    }
    let found = keep < joined.len();
    joined.truncate(keep);
    found
}

/// The index of the last piece that is neither a space nor one of `marks`.
fn content_end(pieces: &[Piece<'_>], marks: &str) -> Option<usize> {
    pieces.iter().rposition(|piece| match piece {
        Piece::Space => false,
        Piece::Mark(mark) => !marks.contains(*mark),
        Piece::Word(_) | Piece::Volatile(_) => true,
    })
}

fn last_volatile(pieces: &[Piece<'_>], marks: &str) -> Option<Kind> {
    match pieces.get(content_end(pieces, marks)?)? {
        Piece::Volatile(kind) => Some(*kind),
        _ => None,
    }
}

fn set_last_volatile(pieces: &mut Vec<Piece<'_>>, kind: Kind) {
    if let Some(at) = pieces.iter().rposition(|piece| matches!(piece, Piece::Volatile(_))) {
        pieces.truncate(at);
        pieces.push(Piece::Volatile(kind));
    }
}

/// The line as people see it: words, punctuation and placeholders, runs of one placeholder shortened.
pub(super) fn render(pieces: &[Piece<'_>], out: &mut String) {
    let mut words = 0;
    let mut last = None;
    let mut pending = String::new();
    for piece in pieces {
        match piece {
            Piece::Space => {
                if !pending.ends_with(' ') {
                    pending.push(' ');
                }
            }
            Piece::Mark(mark) => {
                if !pending.ends_with(*mark) {
                    pending.push(*mark);
                }
            }
            Piece::Word(word) => {
                out.push_str(&pending);
                out.push_str(word);
                last = None;
                pending.clear();
                words += 1;
            }
            Piece::Volatile(kind) => {
                let list = !pending.is_empty() && pending.chars().all(|c| matches!(c, ' ' | ','));
                if !(last == Some(*kind) && list) {
                    out.push_str(&pending);
                    out.push_str(kind.placeholder());
                    words += 1;
                }
                last = Some(*kind);
                pending.clear();
            }
        }
        if words >= WORDS_MAX {
            return;
        }
    }
    out.push_str(pending.trim_end());
}

/// The line as the signature sees it: its words in order, `*` for what is volatile between them, a list
/// of records as one record.
pub(super) fn outline(pieces: &[Piece<'_>], out: &mut String) {
    let mut words: Vec<&str> = Vec::new();
    let mut read = 0;
    for piece in pieces {
        match piece {
            Piece::Word(word) => words.push(word),
            Piece::Volatile(_) if words.last() != Some(&"*") => words.push("*"),
            _ => continue,
        }
        drop_repetition(&mut words);
        read += 1;
        if read >= WORDS_MAX {
            break;
        }
    }
    out.push_str(&words.join(" "));
}

/// `id * name * id * name *` is a list; how long it is does not matter.
fn drop_repetition(words: &mut Vec<&str>) {
    for period in 2..=8 {
        let Some(start) = words.len().checked_sub(2 * period) else { return };
        let (first, second) = words[start..].split_at(period);
        if first == second && first.contains(&"*") {
            words.truncate(start + period);
            return;
        }
    }
}
