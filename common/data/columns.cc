#include "common/data/columns.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "common/data/format.h"
#include "common/data/formats/npy.h"

namespace ringmaster::data {
namespace {

constexpr size_t kMostColumns = 64;  // of a graph

std::string FileOf(const FoundArray& found) {
  return found.file == nullptr ? found.array->column : found.file->fact().name();
}

std::vector<std::string> NamesOf(std::span<const FoundArray> arrays) {
  std::vector<std::string> names;
  for (const FoundArray& found : arrays) {
    if (std::ranges::find(names, found.array->column) == names.end()) {
      names.push_back(found.array->column);
    }
  }
  return names;
}

struct Choice {
  std::string name;
  v1::ColumnUse use;
};

// The rule of data.inputs and data.targets.
StatusOr<std::vector<Choice>> Choose(const v1::DataSource& source,
                                     const std::vector<std::string>& there,
                                     const std::vector<std::string>& others) {
  std::vector<Choice> chosen;
  const auto named = [&](const std::string& name) {
    return std::ranges::find(chosen, name, &Choice::name) != chosen.end();
  };
  const auto take = [&](const char* key, const auto& names, v1::ColumnUse use) -> Status {
    for (const std::string& name : names) {
      if (std::ranges::find(there, name) == there.end()) {
        std::vector<std::string> all = there;
        for (const std::string& other : others) {
          if (std::ranges::find(all, other) == all.end()) all.push_back(other);
        }
        return InvalidArgument("{}: the data have no column \"{}\"; they have {}", key, name,
                               fmt::join(all, ", "));
      }
      if (named(name)) {
        return InvalidArgument("{}: column {} is named twice in data.inputs and data.targets", key,
                               name);
      }
      chosen.push_back({name, use});
    }
    return absl::OkStatus();
  };
  RING_RETURN_IF_ERROR(take("data.inputs", source.inputs(), v1::COLUMN_USE_INPUT));
  RING_RETURN_IF_ERROR(take("data.targets", source.targets(), v1::COLUMN_USE_TARGET));
  const bool inputs = source.inputs_size() > 0, targets = source.targets_size() > 0;
  if (!inputs || !targets) {
    for (const std::string& name : there) {
      if (named(name)) continue;
      const bool target = inputs || (!targets && IsTargetName(name));
      chosen.push_back({name, target ? v1::COLUMN_USE_TARGET : v1::COLUMN_USE_INPUT});
    }
  }
  std::ranges::stable_sort(chosen, {}, &Choice::use);
  if (chosen.size() <= kMostColumns) return chosen;
  return InvalidArgument(
      "the data have {} columns, at most {} are used: name those that are, in "
      "data.inputs and data.targets",
      chosen.size(), kMostColumns);
}

// uint8 (H, W), or (H, W, C) of grey or colour.
bool IsImage(const Array& array) {
  const size_t axes = array.shape.size();
  return array.number == Number::kUint8 &&
         (axes == 2 || (axes == 3 && (array.shape[2] == 1 || array.shape[2] == 3)));
}

StatusOr<v1::StoredColumn> ColumnOf(const Choice& choice, std::span<const FoundArray> arrays) {
  v1::StoredColumn column;
  column.set_name(choice.name);
  column.set_use(choice.use);
  bool image = choice.use == v1::COLUMN_USE_INPUT;
  for (const FoundArray& found : arrays) image = image && IsImage(*found.array);
  const Array& first = *arrays.front().array;
  *column.mutable_shape() = {first.shape.begin(), first.shape.end()};
  if (image) {
    column.set_type(v1::ELEMENT_TYPE_UINT8);
    if (first.shape.size() == 2) column.add_shape(1);
    return column;
  }
  if (IsFloat(first.number)) {
    column.set_type(v1::ELEMENT_TYPE_FLOAT32);
    return column;
  }
  column.set_type(v1::ELEMENT_TYPE_INT32);
  // Classes are often stored as (N, 1).
  if (choice.use == v1::COLUMN_USE_TARGET && column.shape_size() == 1 && column.shape(0) == 1) {
    column.clear_shape();
  }
  for (const FoundArray& found : arrays) {
    int64_t limit = found.array->limit;
    if (limit == 0) {
      RING_ASSIGN_OR_RETURN(const int64_t largest, found.file->LargestOf(*found.array));
      limit = largest + 1;
    }
    column.set_limit(std::max(column.limit(), limit));
  }
  return column;
}

std::vector<FoundArray> Those(std::span<const FoundArray> arrays, const std::string& column) {
  std::vector<FoundArray> those;
  for (const FoundArray& found : arrays) {
    if (found.array->column == column) those.push_back(found);
  }
  return those;
}

bool HasNone(std::span<const FoundArray> arrays, Split split) {
  return std::ranges::none_of(arrays,
                              [&](const FoundArray& found) { return found.array->split == split; });
}

}  // namespace

std::vector<Status> CheckAgreement(std::span<const FoundArray> arrays) {
  std::vector<Status> problems;
  struct Total {
    std::string column, file;
    uint64_t samples = 0;
  };
  std::map<Split, std::vector<Total>> totals;
  for (const std::string& name : NamesOf(arrays)) {
    const std::vector<FoundArray> those = Those(arrays, name);
    const Array& first = *those.front().array;
    std::map<Split, Total> sums;
    for (const FoundArray& found : those) {
      const Array& array = *found.array;
      Total& sum = sums.try_emplace(array.split, Total{name, FileOf(found)}).first->second;
      sum.samples += array.samples;
      if (array.shape != first.shape) {
        problems.push_back(FailedPrecondition("{} has {} of {}, {} of {}: all must be of one shape",
                                              FileOf(those.front()), name, ShapeText(first.shape),
                                              FileOf(found), ShapeText(array.shape)));
      } else if (IsFloat(array.number) != IsFloat(first.number)) {
        problems.push_back(FailedPrecondition(
            "{} has {} in {}, {} in {}: all must be whole numbers, or none", FileOf(those.front()),
            name, NameOf(first.number), FileOf(found), NameOf(array.number)));
      } else if (array.parts != first.parts) {
        problems.push_back(FailedPrecondition(
            "{} of {} is made of {}, of {} of {}: all files must have the same columns in the same "
            "order",
            name, FileOf(those.front()), fmt::join(first.parts, ", "), FileOf(found),
            fmt::join(array.parts, ", ")));
      }
    }
    for (const auto& [split, sum] : sums) totals[split].push_back(sum);
    for (const Split split : {Split::kTrain, Split::kTest}) {
      const bool left_out = split == Split::kTest && HasNone(arrays, split);
      if (sums.contains(split) || left_out) continue;
      problems.push_back(FailedPrecondition(
          "{} has column {}, the {} data have none: add it, or name the columns that are used in "
          "data.inputs and data.targets",
          FileOf(those.front()), name, NameOf(split)));
    }
  }
  for (const auto& [split, columns] : totals) {
    const Total& first = columns.front();
    for (const Total& total : columns) {
      if (total.samples == first.samples) continue;
      problems.push_back(
          FailedPrecondition("{} has {} samples of {}, {} has {} of {} ({}): as "
                             "many expected",
                             first.file, first.samples, first.column, total.file, total.samples,
                             total.column, NameOf(split)));
    }
  }
  return problems;
}

StatusOr<std::vector<v1::StoredColumn>> ChooseColumns(const v1::DataSource& source,
                                                      std::span<const FoundArray> arrays,
                                                      const std::vector<std::string>& others) {
  // In the order of the training files.
  std::vector<FoundArray> train;
  std::ranges::copy_if(arrays, std::back_inserter(train),
                       [](const FoundArray& found) { return found.array->split == Split::kTrain; });
  RING_ASSIGN_OR_RETURN(const std::vector<Choice> chosen, Choose(source, NamesOf(train), others));
  std::vector<v1::StoredColumn> columns;
  for (const Choice& choice : chosen) {
    RING_ASSIGN_OR_RETURN(columns.emplace_back(), ColumnOf(choice, Those(arrays, choice.name)));
  }
  return columns;
}

std::vector<std::string> NamedColumns(const v1::DataSource& source) {
  if (source.inputs_size() == 0 || source.targets_size() == 0) return {};
  std::vector<std::string> names(source.inputs().begin(), source.inputs().end());
  names.insert(names.end(), source.targets().begin(), source.targets().end());
  return names;
}

StatusOr<v1::DatasetFacts> UsualFacts(const v1::DataSource& source) {
  RING_ASSIGN_OR_RETURN(const Format* const format, FindFormat(source.format()));
  if (format->classes == 0) {
    return InvalidArgument("data.format: {}: what columns there are stands in the files alone",
                           format->name);
  }
  std::vector<FileLayout> layouts;  // of sample data
  for (const SampleFile& file : format->sample_files(1, 1, 0)) {
    for (const FileKind& kind : format->files) {
      if (!Matches(kind, file.name)) continue;
      RING_ASSIGN_OR_RETURN(
          layouts.emplace_back(),
          format->layout(kind, {file.name, file.header, file.header.size() + file.record_bytes}));
    }
  }
  std::vector<FoundArray> arrays;
  for (const FileLayout& layout : layouts) {
    for (const Array& array : layout.arrays) arrays.push_back({nullptr, &array});
  }
  v1::DatasetFacts facts;
  facts.set_format(format->name);
  RING_ASSIGN_OR_RETURN(const auto columns, ChooseColumns(source, arrays));
  *facts.mutable_columns() = {columns.begin(), columns.end()};
  return facts;
}

bool IsTargetName(const std::string& name) {
  if (name.starts_with("label") || name.starts_with("target")) return true;
  return name == "y" || (name.size() > 1 && name[0] == 'y' &&
                         (name[1] == '_' || (name[1] >= '0' && name[1] <= '9')));
}

size_t ElementsOf(const v1::StoredColumn& column) {
  size_t elements = 1;
  for (const int64_t extent : column.shape()) elements *= static_cast<size_t>(extent);
  return elements;
}

size_t RowBytes(const v1::StoredColumn& column) {
  const bool byte = column.type() == v1::ELEMENT_TYPE_UINT8;
  return ElementsOf(column) * (byte ? 1 : sizeof(int32_t));
}

}  // namespace ringmaster::data
