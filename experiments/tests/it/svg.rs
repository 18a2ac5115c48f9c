//! Elements of SVG figures.

/// Returns the lines of elements of a tag, such as `<circle`, that contain `color`, in drawing
/// order.
pub(crate) fn elements<'a>(svg: &'a str, tag: &str, color: &str) -> Vec<&'a str> {
    svg.lines().filter(|line| line.starts_with(tag) && line.contains(color)).collect()
}

/// Returns a numeric attribute of an element.
pub(crate) fn attribute(element: &str, name: &str) -> f64 {
    let (_, from) = element.split_once(&format!(" {name}=\"")).unwrap();
    from.split_once('"').unwrap().0.parse().unwrap()
}

/// Returns the centres of circles, in pixels from the left and the top.
pub(crate) fn centres(svg: &str, color: &str) -> Vec<(f64, f64)> {
    let centre = |circle: &str| (attribute(circle, "cx"), attribute(circle, "cy"));
    elements(svg, "<circle", color).into_iter().map(centre).collect()
}

/// Asserts that pixels are a linear function of values, up to rounding to whole pixels. For a
/// logarithmic scale, pass logarithms.
pub(crate) fn assert_on_one_scale(points: &[(f64, f64)]) {
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let &(from, min) = points.iter().min_by(by_value).unwrap();
    let &(to, max) = points.iter().max_by(by_value).unwrap();
    for &(pixel, value) in points {
        let share = if max > min { (value - min) / (max - min) } else { 0.0 };
        let expected = from + share * (to - from);
        assert!((pixel - expected).abs() <= 2.0, "{value} is at {pixel}, not at {expected}");
    }
}
