// Which columns a dataset has for a job, and what they are: made of what its files have, and of
// what data.inputs and data.targets say. Thread-safe (free functions).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/data/data_file.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::data {

// An array in a file; without a file of data that nobody has looked at.
struct FoundArray {
  const DataFile* file = nullptr;
  const Array* array = nullptr;
};

// What is wrong with them together: columns that a split lacks, shapes and numbers of samples that
// differ, numbers that are whole here and not there.
[[nodiscard]] std::vector<Status> CheckAgreement(std::span<const FoundArray> arrays);

// Inputs, then targets; each with its limit, for which whole numbers are read. `arrays` agree;
// `others`: what else there is, for messages.
// There may be none of a sort. INVALID_ARGUMENT: the keys name a column that there is not;
// FAILED_PRECONDITION as DataFile::LargestOf.
[[nodiscard]] StatusOr<std::vector<v1::StoredColumn>> ChooseColumns(
    const v1::DataSource& source, std::span<const FoundArray> arrays,
    const std::vector<std::string>& others = {});

// All that the keys name where they name both sorts; empty: any column.
[[nodiscard]] std::vector<std::string> NamedColumns(const v1::DataSource& source);

// Whether a column is a target where nobody says which are: y, y_price, y2, label, target_x ...
[[nodiscard]] bool IsTargetName(const std::string& name);
// What data.csv.delimiter says (csv.cc). INVALID_ARGUMENT: it is no character that can do it.
[[nodiscard]] StatusOr<char> CsvDelimiter(const v1::DataSource& source);

// What data of data.format have as their publishers distribute them: format and columns, no files
// and no counts. INVALID_ARGUMENT names the formats, or says that the files alone can tell.
[[nodiscard]] StatusOr<v1::DatasetFacts> UsualFacts(const v1::DataSource& source);

// Of a row: numbers and bytes, as Dataset::Read gives it.
[[nodiscard]] size_t ElementsOf(const v1::StoredColumn& column);
[[nodiscard]] size_t RowBytes(const v1::StoredColumn& column);

}  // namespace ringmaster::data
