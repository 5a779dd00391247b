//! Lines on their way to a program: short ones together, long ones without copying them again.

use std::collections::VecDeque;

use super::wire::write_line;
use crate::context::Context;

/// A buffer that holds this much is closed; the next line begins a new one.
const FULL: usize = 32 * 1024;

#[derive(Default)]
pub(super) struct Outgoing {
    buffers: VecDeque<Vec<u8>>,
    /// How much of the first buffer is written.
    offset: usize,
    queued: u64,
    written: u64,
}

impl Outgoing {
    /// Adds the line for a message. Answers with where it begins in all that was ever queued.
    pub(super) fn push(&mut self, ctx: &Context) -> u64 {
        let from = self.queued;
        if self.buffers.back().is_none_or(|buffer| buffer.len() >= FULL) {
            self.buffers.push_back(Vec::with_capacity(ctx.payload().len().max(512) + 512));
        }
        if let Some(buffer) = self.buffers.back_mut() {
            let before = buffer.len();
            write_line(ctx, buffer);
            self.queued += (buffer.len() - before) as u64;
        }
        from
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// What to write next.
    pub(super) fn next(&self) -> &[u8] {
        self.buffers.front().map_or(&[], |buffer| &buffer[self.offset..])
    }

    /// So much of it is written.
    pub(super) fn wrote(&mut self, count: usize) {
        self.offset += count;
        self.written += count as u64;
        if self.buffers.front().is_some_and(|buffer| self.offset >= buffer.len()) {
            self.buffers.pop_front();
            self.offset = 0;
        }
    }

    /// Nothing more can be written.
    pub(super) fn clear(&mut self) {
        self.buffers.clear();
    }

    /// True if the line that begins here reached the program, in part or whole.
    pub(super) fn reached(&self, from: u64) -> bool {
        from < self.written
    }
}
