//! Finds a name, and says what was meant where there is none.

fn main() {
    let known = ["red", "green", "blue"];
    for typed in ["Red", "gren", "purple"] {
        match known_names::find(typed, known) {
            Some(name) => println!("{name}"),
            None => println!("`{typed}` is not known{}", known_names::hint(typed, known)),
        }
    }
}
