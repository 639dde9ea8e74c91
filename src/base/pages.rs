//! Building blocks of reports: aligned columns of text for a terminal, the frame of an HTML page, and charts.

pub mod chart;
pub mod columns;
pub mod html;
