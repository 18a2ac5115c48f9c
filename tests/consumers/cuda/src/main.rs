//! Prints the devices that CUDA has, or the reason why there are none.

use cuda::{Driver, Error};

fn main() -> cuda::Result<()> {
    let driver = match Driver::open() {
        Ok(driver) => driver,
        Err(error @ Error::Unavailable { .. }) => {
            println!("no GPU: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for ordinal in 0..driver.devices()? {
        let context = driver.context(ordinal)?;
        let capabilities = context.capabilities()?;
        println!(
            "device {ordinal}: {}, {} multiprocessors",
            context.device_name()?,
            capabilities.multiprocessors
        );
    }
    Ok(())
}
