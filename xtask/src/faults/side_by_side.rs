//! Work that is done two pieces at a time, each of which says what it has to say in one go.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// So many pieces are done at the same time.
const AT_ONCE: usize = 2;

/// Does all pieces, the first ones first. What came of each is told as soon as it has ended, one after the other, and
/// answered in the order of the pieces.
pub(super) fn side_by_side<T: Sync, R: Send>(
    pieces: &[T],
    work: impl Fn(&T) -> R + Sync,
    tell: impl Fn(&T, &R) + Sync,
) -> Vec<R> {
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..pieces.len()).collect());
    let done: Mutex<Vec<Option<R>>> = Mutex::new(pieces.iter().map(|_| None).collect());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(index) = next() {
                    let came_of_it = work(&pieces[index]);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    tell(&pieces[index], &came_of_it);
                    done[index] = Some(came_of_it);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::side_by_side;

    #[test]
    fn two_pieces_are_done_at_the_same_time_and_answered_in_their_order() {
        let together = Barrier::new(2);
        let pieces = [3, 1, 4, 1];
        let doubled = side_by_side(
            &pieces,
            |piece| {
                // Nobody gets past this alone.
                together.wait();
                piece * 2
            },
            |_, _| {},
        );
        assert_eq!(doubled, [6, 2, 8, 2]);
    }

    #[test]
    fn one_piece_at_a_time_is_told_about() {
        let telling = AtomicUsize::new(0);
        let told = AtomicUsize::new(0);
        side_by_side(
            &[1; 20],
            |piece| *piece,
            |_, _| {
                assert_eq!(telling.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                std::thread::yield_now();
                telling.fetch_sub(1, Ordering::SeqCst);
                told.fetch_add(1, Ordering::SeqCst);
            },
        );
        assert_eq!(told.into_inner(), 20);
    }
}
