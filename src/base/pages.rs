//! Building blocks of reports: text, tables and charts, which a report shows on a page, in Markdown or on a
//! terminal.

pub mod chart;
pub mod columns;
pub mod html;
pub mod report;
pub mod table;
pub mod text;
