//! Sums the ranks' numbers over all ranks, then over the even and the odd ranks.

use collectives::{Communicator, Group, HostBuffer, MpiWorld, ReduceOp, Result};

fn main() -> Result<()> {
    let ranks = MpiWorld::new().communicator()?;
    let mut sum = HostBuffer::from(vec![ranks.rank() as f32; 1000]);
    ranks.all_reduce(&mut sum, ReduceOp::Sum, &mut ())?;

    let parity = ranks.rank() as u32 % 2;
    if let Some(half) = ranks.split(Some(parity), 0)? {
        let mut part = HostBuffer::from(vec![ranks.rank() as f64]);
        half.all_reduce(&mut part, ReduceOp::Sum, &mut ())?;
        println!("rank {} of {}: all {}, parity {parity} {}", ranks.rank(), ranks.size(), sum[0], part[0]);
    }
    Ok(())
}
