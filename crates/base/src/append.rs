use std::collections::VecDeque;

/// Appends `item` to `queue`. A full queue grows by a quarter, not twofold: a long one walks through all
/// the memory that it has, and memory touched for the first time costs more than the moves.
#[inline]
pub fn append<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() == queue.capacity() {
        grow(queue);
    }
    queue.push_back(item);
}

#[cold]
#[inline(never)]
fn grow<T>(queue: &mut VecDeque<T>) {
    queue.reserve_exact((queue.len() / 4).max(8));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_queue_has_little_more_room_than_items() {
        let mut queue = VecDeque::new();
        for item in 0..100_000 {
            append(&mut queue, item);
            if item % 3 == 0 {
                queue.pop_front();
            }
        }
        assert!(queue.iter().copied().eq(33_334..100_000));
        let room = queue.capacity();
        assert!(room <= queue.len() * 5 / 4 + 8, "room for {room}");
    }
}
