//! Messages between two ranks.

use collectives::{Request, Result, bf16, f16};

use super::{Carries, Case, Number, Subject, every_type, input};

/// All receives are started before any send is waited for, so that any pattern of senders works,
/// including messages to oneself.
pub(crate) fn messages_arrive_in_order_with_their_tag<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn law<T: Number, C: Carries<T>>(ranks: &C, case: &Case) -> Result<()> {
        let (rank, size, queue) = (ranks.rank(), ranks.size(), &mut ranks.queue());
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (i, &(from, to, tag, len)) in case.messages.iter().enumerate() {
            if from % size == rank {
                sends.push(ranks.start_send(ranks.buffer(&input(i, len)), to % size, tag, queue)?);
            }
            if to % size == rank {
                let buffer = ranks.buffer(&vec![T::default(); len]);
                receives.push((i, len, ranks.start_receive(buffer, from % size, tag, queue)?));
            }
        }
        for (i, len, receive) in receives.into_iter().rev() {
            assert_eq!(ranks.values(&receive.wait()?), input(i, len));
        }
        sends.into_iter().try_for_each(|send| send.wait().map(|_| ()))
    }
    every_type!(law(ranks, case));
    Ok(())
}
