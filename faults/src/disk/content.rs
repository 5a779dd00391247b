//! The bytes of a file, cheap to copy: pages are shared until they are written.

use std::sync::Arc;

const PAGE: usize = 4096;

/// What a file holds.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pages: Vec<Option<Arc<[u8; PAGE]>>>,
    size: usize,
}

impl Content {
    /// How long it is.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Fills a buffer from an offset; what is beyond the end is zero. Answers how many bytes there were.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> usize {
        bytes.fill(0);
        let there = self.size.saturating_sub(offset).min(bytes.len());
        let mut done = 0;
        while done < there {
            let (page, at) = ((offset + done) / PAGE, (offset + done) % PAGE);
            let count = (PAGE - at).min(there - done);
            if let Some(Some(page)) = self.pages.get(page) {
                bytes[done..done + count].copy_from_slice(&page[at..at + count]);
            }
            done += count;
        }
        there
    }

    /// Writes; a gap before it is zero.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.size = self.size.max(offset + bytes.len());
        self.pages.resize(self.size.div_ceil(PAGE).max(self.pages.len()), None);
        let mut done = 0;
        while done < bytes.len() {
            let (page, at) = ((offset + done) / PAGE, (offset + done) % PAGE);
            let count = (PAGE - at).min(bytes.len() - done);
            let page = self.pages[page].get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[at..at + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
    }

    /// Cuts it off, or makes it longer by zeros.
    pub fn truncate(&mut self, size: usize) {
        if size < self.size && !size.is_multiple_of(PAGE) {
            let zeros = vec![0; PAGE - size % PAGE];
            self.write(size, &zeros);
        }
        self.pages.resize(size.div_ceil(PAGE), None);
        self.size = size;
    }

    /// Adds all of it to a hash.
    pub fn add_to(&self, hasher: &mut impl std::hash::Hasher) {
        hasher.write_usize(self.size);
        for page in &self.pages {
            match page {
                Some(page) => hasher.write(&page[..]),
                None => hasher.write_u8(0),
            }
        }
    }

    /// Turns one bit over.
    pub fn flip(&mut self, bit: usize) {
        let mut byte = [0];
        self.read(bit / 8, &mut byte);
        self.write(bit / 8, &[byte[0] ^ 1 << (bit % 8)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_independent_and_gaps_are_zero() {
        let mut one = Content::default();
        one.write(PAGE - 2, b"abcd");
        let mut two = one.clone();
        two.write(0, b"x");
        two.flip(PAGE * 8);
        two.truncate(PAGE + 1);
        two.truncate(PAGE + 2);
        let read = |content: &Content, at: usize, count: usize| {
            let mut bytes = vec![9; count];
            let there = content.read(at, &mut bytes);
            (bytes, there)
        };
        assert_eq!(read(&one, PAGE - 3, 6), (b"\0abcd\0".to_vec(), 5));
        assert_eq!(read(&two, PAGE - 2, 4), (b"abb\0".to_vec(), 4));
        assert_eq!((read(&one, 0, 1).0, read(&two, 0, 1).0), (vec![0], vec![b'x']));
        assert_eq!(read(&one, 3 * PAGE, 2), (vec![0, 0], 0));
    }
}
