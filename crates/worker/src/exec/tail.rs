//! The end of an output, in bounded memory however much comes.

use std::borrow::Cow;

/// How much of a program's output is kept. An error may be 64 KiB long; the rest is for the evidence
/// that stands before it.
pub(super) const TAIL_BYTES_MAX: usize = 63 * 1024;

/// The last bytes of an output.
#[derive(Default)]
pub(super) struct Tail {
    kept: Vec<u8>,
    total: u64,
}

impl Tail {
    /// Takes what came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if bytes.len() >= TAIL_BYTES_MAX {
            self.kept.clear();
        }
        self.kept.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..]);
        if self.kept.len() > 2 * TAIL_BYTES_MAX {
            self.kept.drain(..self.kept.len() - TAIL_BYTES_MAX);
        }
    }

    /// How much came in all.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// The end of what came.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.kept[self.kept.len().saturating_sub(TAIL_BYTES_MAX)..]
    }

    /// The end of what came after the first `mark` bytes.
    pub(super) fn since(&self, mark: u64) -> &[u8] {
        let newer = usize::try_from(self.total.saturating_sub(mark)).unwrap_or(usize::MAX);
        let bytes = self.bytes();
        &bytes[bytes.len().saturating_sub(newer)..]
    }
}

/// The end of an output as text that still fits once its control characters are escaped: the last line
/// is the one that counts.
pub(super) fn tail_text(bytes: &[u8]) -> String {
    let text: Cow<'_, str> = String::from_utf8_lossy(bytes);
    let text = text.trim_end();
    let mut room = TAIL_BYTES_MAX;
    let cost = |c: char| if c.is_control() || !c.is_ascii() { c.len_utf8().max(8) } else { 1 };
    let fits = |(_, c): &(usize, char)| {
        let cost = cost(*c);
        let fits = cost <= room;
        room = room.saturating_sub(cost);
        fits
    };
    let from = text.char_indices().rev().take_while(fits).last().map_or(text.len(), |(at, _)| at);
    text[from..].trim_start_matches(['\n', '\r']).to_owned()
}

#[cfg(test)]
mod tests {
    use sickbay_core::text::clean_error;

    use super::*;

    #[test]
    fn a_flood_is_kept_in_bounded_memory_and_its_end_is_exact() {
        let mut tail = Tail::default();
        for n in 0..50_000u32 {
            tail.push(format!("line {n}\n").as_bytes());
            assert!(tail.kept.capacity() <= 4 * TAIL_BYTES_MAX);
        }
        tail.push(&vec![b'x'; 1 << 20]);
        tail.push(b"the end");
        assert!(tail.bytes().ends_with(b"xxthe end"));
        assert_eq!(tail.bytes().len(), TAIL_BYTES_MAX);
        assert_eq!(tail.since(tail.total() - 3), b"end");
        assert_eq!(tail.since(tail.total()), b"");
        assert_eq!(tail.since(0).len(), TAIL_BYTES_MAX);
    }

    #[test]
    fn the_last_line_survives_cleaning_whatever_stands_before_it() {
        for noise in ["\0", "\u{1b}", "é", "x", "\u{202E}"] {
            let text = tail_text(format!("{}\nlast line\n\n", noise.repeat(TAIL_BYTES_MAX)).as_bytes());
            let cleaned = clean_error(&format!("killed by signal 9 (SIGKILL)\n{text}"));
            assert!(cleaned.ends_with("last line"), "{noise:?}");
        }
        assert_eq!(tail_text(b"\n\nboom \xFF\n"), "boom \u{FFFD}");
        assert_eq!(tail_text(b""), "");
    }
}
