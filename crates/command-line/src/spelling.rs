//! Similarity of names up to case, spaces and punctuation.

/// Minimum Jaro-Winkler similarity, from 0 to 1, of a typed name and a known name that is suggested
/// for it.
const MIN_SIMILARITY: f64 = 0.85;

/// Returns the known name that equals `typed`, or else the first one that equals it up to case and
/// characters that are neither letters nor digits; `None` if there is neither.
#[must_use]
pub fn find<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut found = None;
    for known in known {
        if known == typed {
            return Some(known);
        }
        if found.is_none() && !plain(typed).is_empty() && plain(known) == plain(typed) {
            found = Some(known);
        }
    }
    found
}

/// Returns the end of an error message about an unknown name: a suggestion, such as "; did you mean
/// `vgg16`?", if one known name is similar and more so than all others, and otherwise an empty
/// string.
#[must_use]
pub fn hint<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let similarity = |known: &'a str| (strsim::jaro_winkler(&plain(typed), &plain(known)), known);
    let mut similar: Vec<(f64, &str)> = known.into_iter().map(similarity).collect();
    similar.sort_by(|a, b| b.0.total_cmp(&a.0));
    match similar[..] {
        [(best, meant), ref others @ ..]
            if best >= MIN_SIMILARITY && others.first().is_none_or(|(next, _)| *next < best) =>
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
    fn names_are_found_up_to_case_and_punctuation() {
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
    }

    #[test]
    fn only_a_unique_most_similar_name_is_suggested() {
        assert_eq!(hint("vgg", ["vgg16", "vgg19"]), "");
        assert_eq!(hint("vgg61", ["vgg16", "gpt2"]), "; did you mean `vgg16`?");
        assert_eq!(hint("x", []), "");
    }
}
