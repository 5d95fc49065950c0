//! The known name that was probably meant.

/// The known name with the smallest edit distance from `name`, ignoring case.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> &'a str {
    known
        .iter()
        .min_by_key(|candidate| distance(&name.to_lowercase(), &candidate.to_lowercase()))
        .copied()
        .unwrap_or_default()
}

/// The nearest known name, unless more than about a third of its letters differ.
pub fn similar<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let nearest = nearest(name, known);
    let letters = nearest.chars().count();
    let edits = distance(&name.to_lowercase(), &nearest.to_lowercase());
    (letters > 0 && edits <= letters.div_ceil(3)).then_some(nearest)
}

fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, in_a) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, in_b) in row.iter_mut().skip(1).zip(b.chars()) {
            let substituted = diagonal + usize::from(in_a != in_b);
            diagonal = *cell;
            left = substituted.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_differs_much_is_not_similar() {
        let known = ["--kubeconfig", "--config", "-o"];
        let rows = [
            ("--kubeconifg", Some("--kubeconfig")),
            ("--KUBECONFIG", Some("--kubeconfig")),
            ("--confg", Some("--config")),
            ("--verbose", None),
            ("", None),
        ];
        for (name, expected) in rows {
            assert_eq!(similar(name, &known), expected, "{name:?}");
        }
        assert_eq!(similar("a", &[]), None);
    }

    #[test]
    fn distances_count_edits() {
        let rows = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("maxpods", "maxpods", 0),
            ("maxpod", "maxpods", 1),
            ("maxxpods", "maxpods", 1),
        ];
        for (a, b, expected) in rows {
            assert_eq!(distance(a, b), expected, "{a:?} to {b:?}");
        }
    }
}
