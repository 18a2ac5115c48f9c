//! Prints the path of the library of emulated GPUs.

fn main() -> Result<(), emulated_gpus::NotFound> {
    match emulated_gpus::library()? {
        Some(path) => println!("{}", path.display()),
        None => println!("{} is not set: the machine's own", emulated_gpus::NUMBER_VARIABLE),
    }
    Ok(())
}
