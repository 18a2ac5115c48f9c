//! Prints the path of the library for emulated GPUs.

fn main() -> Result<(), emulated_gpus::NotFound> {
    match emulated_gpus::library()? {
        Some(path) => println!("{}", path.display()),
        None => println!("{} is not set: using the machine's GPUs", emulated_gpus::NUMBER_VARIABLE),
    }
    Ok(())
}
