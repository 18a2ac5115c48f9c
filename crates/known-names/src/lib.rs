#![doc = include_str!("../README.md")]

/// How alike two names have to be, from 0 to 1 (Jaro and Winkler), for one to be taken for the other mistyped.
const ALIKE: f64 = 0.85;

/// The known name that is the same but for case and what is neither letter nor digit.
#[must_use]
pub fn find<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut found = None;
    for known in known {
        if known == name {
            return Some(known);
        }
        if found.is_none() && !plain(name).is_empty() && plain(known) == plain(name) {
            found = Some(known);
        }
    }
    found
}

/// The end of a message about a name that is not known: which one was meant, where one is more alike than all others.
#[must_use]
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let alike = |known: &'a str| (strsim::jaro_winkler(&plain(name), &plain(known)), known);
    let mut alike: Vec<(f64, &str)> = known.into_iter().map(alike).collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0));
    match alike[..] {
        [(best, meant), ref others @ ..]
            if best >= ALIKE && others.first().is_none_or(|(next, _)| *next < best) =>
        {
            format!("; did you mean `{meant}`?")
        }
        _ => String::new(),
    }
}

fn plain(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::{find, hint};

    #[test]
    fn names_are_found_as_people_type_them() {
        let known = ["a100", "a100-80gb", "inception-v3", "a10-0"];
        for (typed, meant) in [
            ("A100", Some("a100")),
            ("a10-0", Some("a10-0")),
            ("A100_80GB", Some("a100-80gb")),
            ("Inception v3", Some("inception-v3")),
            ("inception", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(find(typed, known), meant, "{typed}");
        }
        // Two that are as alike: no hint is better than a wrong one.
        assert_eq!(hint("vgg", ["vgg16", "vgg19"]), "");
        assert_eq!(hint("vgg61", ["vgg16", "gpt2"]), "; did you mean `vgg16`?");
        assert_eq!(hint("x", []), "");
    }
}
