//! Lines of cost against size, both axes logarithmic.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

/// A line, and what it is called.
pub struct Line {
    /// In the legend.
    pub label: String,
    /// Of the line.
    pub colour: RGBColor,
    /// Operations and processor seconds.
    pub points: Vec<(f64, f64)>,
}

/// Draws lines; the axes hold all of `within`, so that panels of one picture can share them.
///
/// # Errors
/// When drawing fails.
pub fn chart(
    panel: &DrawingArea<SVGBackend<'_>, Shift>,
    caption: &str,
    within: &[(f64, f64)],
    lines: &[Line],
) -> Result<(), Box<dyn Error>> {
    let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let (low, high) = within.iter().fold((f64::MAX, 0f64), |(l, h), at| (l.min(of(at)), h.max(of(at))));
        10f64.powf(low.log10().floor())..10f64.powf(high.log10().ceil())
    };
    let (x, y) = (range(&|at| at.0), range(&|at| at.1));
    let mut chart = ChartBuilder::on(panel)
        .caption(caption, ("sans-serif", 19))
        .margin(15)
        .margin_right(40)
        .x_label_area_size(50)
        .y_label_area_size(75)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("operations")
        .y_desc("CPU seconds")
        .x_label_formatter(&count)
        .y_label_formatter(&duration)
        .axis_desc_style(("sans-serif", 16))
        .label_style(("sans-serif", 14))
        .bold_line_style(BLACK.mix(0.2))
        .light_line_style(BLACK.mix(0.05))
        .draw()?;
    for Line { label, colour, points } in lines.iter().filter(|line| !line.points.is_empty()) {
        let colour = *colour;
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
            .label(label.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(3)));
        chart.draw_series(points.iter().map(|&at| Circle::new(at, 4, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .legend_area_size(28)
        .margin(12)
        .label_font(("sans-serif", 15))
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// A power of ten, in the units in which people say it.
fn count(n: &f64) -> String {
    match n.log10().round() as i32 {
        p if p >= 6 => format!("{} million", 10u64.pow(p as u32 - 6)),
        p if p >= 3 => format!("{},000", 10u64.pow(p as u32 - 3)),
        _ => n.to_string(),
    }
}

fn duration(seconds: &f64) -> String {
    match seconds.log10().round() as i32 {
        p if p >= 0 => format!("{} s", 10u64.pow(p as u32)),
        p if p >= -3 => format!("{} ms", 10u64.pow((p + 3) as u32)),
        p => format!("{} µs", 10u64.pow((p + 6).max(0) as u32)),
    }
}
