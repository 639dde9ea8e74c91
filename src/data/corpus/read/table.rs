//! CSV and TSV with a header: one column is the text, another may be the title.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::corpus::read::Limits;
use crate::corpus::read::assembly::{Assembly, Origin, Records};
use crate::corpus::read::json_object::known_names;
use crate::corpus::read::reading::Columns;
use crate::records::Dialect;
use crate::records::fields::{End, Fields, Kept, header_of};
use crate::records::utf8::Decoded;
use base::error::Problem;
use base::fs::TextFile;

/// Reads documents from a table.
pub(super) struct TableRows {
    fields: Fields,
    columns: Columns,
    column_count: usize,
    text: Column,
    title: Option<Column>,
}

/// A wanted column, and its field in the current row.
struct Column {
    index: usize,
    kept: Kept,
}

impl TableRows {
    pub(super) fn open(
        text: TextFile,
        path: &Arc<Path>,
        dialect: Dialect,
        columns: &Columns,
        limits: Limits,
    ) -> Result<Self> {
        let mut fields = Fields::new(text, Arc::clone(path), dialect)?;
        let header = header_of(&mut fields)?;
        let line_bytes = limits.line_bytes;
        let place = format!("{}:{}", path.display(), fields.header_line());
        let text = Column::find(&header, "field", &columns.text, &place, line_bytes)?;
        let title = columns
            .title
            .as_deref()
            .map(|name| Column::find(&header, "title_field", name, &place, line_bytes))
            .transpose()?;
        Ok(Self { fields, columns: columns.clone(), column_count: header.len(), text, title })
    }

    /// Reads a row; returns its number of fields, 0 at the end of the file.
    fn row(&mut self) -> Result<usize> {
        for column in [Some(&mut self.text), self.title.as_mut()].into_iter().flatten() {
            column.kept.clear();
        }
        for index in 0.. {
            let kept = match &mut self.title {
                _ if index == self.text.index => Some(&mut self.text.kept),
                Some(title) if index == title.index => Some(&mut title.kept),
                _ => None,
            };
            match self.fields.next(kept)? {
                End::File => return Ok(0),
                End::Record => return Ok(index + 1),
                End::Field => {}
            }
        }
        Ok(0)
    }
}

impl Column {
    /// Finds the column `name` in a header at `place`; `key` is the configuration key that names it.
    fn find(header: &[String], key: &str, name: &str, place: &str, bytes_max: usize) -> Result<Self> {
        let mut found = header.iter().enumerate().filter(|(_, known)| *known == name).map(|(index, _)| index);
        let Some(index) = found.next() else {
            let hint = known_names(key, "columns", header.iter().map(String::as_str));
            return Err(Problem::new(format!("column `{name}` is missing")).at(place).hint(hint).into());
        };
        if found.next().is_some() {
            return Err(Problem::new(format!("column `{name}` is there twice")).at(place).into());
        }
        Ok(Self { index, kept: Kept::new(bytes_max) })
    }
}

impl Records for TableRows {
    fn advance(&mut self, out: &mut Assembly) -> Result<bool> {
        let count = self.row()?;
        let line = self.fields.record_line();
        if count == 0 {
            return Ok(false);
        }
        if count == 1 && self.fields.record_is_blank() {
            return Ok(true);
        }
        let problem = self.fields.open_quote().or_else(|| self.fields.wrong_count(count, self.column_count));
        if let Some(problem) = problem {
            let kept = &self.text.kept;
            out.bad_record(line, problem.at(out.location(line)), kept.length(), kept.bytes())?;
            return Ok(true);
        }
        let named = [
            (&self.columns.text, Some(&self.text)),
            (self.columns.title.as_ref().unwrap_or(&self.columns.text), self.title.as_ref()),
        ];
        let mut parts: [Option<Decoded<'_>>; 2] = [None, None];
        for ((name, column), part) in named.into_iter().zip(&mut parts) {
            let Some(Column { kept, .. }) = column else { continue };
            if kept.is_too_long() {
                out.reject_too_long(line, kept.length(), kept.bytes());
                return Ok(true);
            }
            let whole = format!("column `{name}`");
            let Some(decoded) = out.decode(kept.bytes(), Origin { line, whole: &whole, offset: 0 })? else {
                return Ok(true);
            };
            *part = Some(decoded);
        }
        let [text, title] = parts;
        out.record(title, text, line);
        Ok(true)
    }

    fn position_bytes(&self) -> u64 {
        self.fields.position_bytes()
    }
}
