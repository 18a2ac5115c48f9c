//! What is drawn in a figure, and where.

/// The lines of elements of a kind, such as `<circle`, that have `color` in them, in the order in which they are drawn.
pub(crate) fn elements<'a>(svg: &'a str, tag: &str, color: &str) -> Vec<&'a str> {
    svg.lines().filter(|line| line.starts_with(tag) && line.contains(color)).collect()
}

/// A number among an element's attributes.
pub(crate) fn attribute(element: &str, name: &str) -> f64 {
    let (_, from) = element.split_once(&format!(" {name}=\"")).unwrap();
    from.split_once('"').unwrap().0.parse().unwrap()
}

/// The centres of circles, in pixels from the left and the top.
pub(crate) fn centres(svg: &str, color: &str) -> Vec<(f64, f64)> {
    let centre = |circle: &str| (attribute(circle, "cx"), attribute(circle, "cy"));
    elements(svg, "<circle", color).into_iter().map(centre).collect()
}

/// Pixels and what they stand for lie on one straight scale, but for the rounding to whole pixels. Of a logarithmic scale, values are
/// given as their logarithms.
pub(crate) fn assert_on_one_scale(points: &[(f64, f64)]) {
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let &(from, least) = points.iter().min_by(by_value).unwrap();
    let &(to, most) = points.iter().max_by(by_value).unwrap();
    for &(pixel, value) in points {
        let share = if most > least { (value - least) / (most - least) } else { 0.0 };
        let expected = from + share * (to - from);
        assert!((pixel - expected).abs() <= 2.0, "{value} is at {pixel}, not at {expected}");
    }
}
