// Looks through a dataset's folder: every file that its format wants, and everything that is wrong,
// not only the first thing. What a dataset is made of, and what `ringctl dataset verify` prints.
// Thread-safe (free functions).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/data/beneath.h"
#include "common/data/data_file.h"
#include "common/data/format.h"
#include "common/data/hash_cache.h"

namespace ringmaster::data {

struct SurveyedFile {
  FoundFile found;
  std::optional<DataFile> file;  // empty when there is a problem with it
};

struct Survey {
  std::vector<SurveyedFile> files;  // sorted by name: the order of samples
  std::vector<Status> problems;     // empty: the dataset is whole
};

// The names in a folder and, as `train/x.npy`, in its folders train and test; sorted.
[[nodiscard]] StatusOr<std::vector<std::string>> NamesIn(const OwnedFile& folder);

// Those of `names` that are files of the format.
[[nodiscard]] std::vector<FoundFile> FilesOf(const Format& format,
                                             const std::vector<std::string>& names);

// The format called `name`, or without a name the one whose files are in the folder; where files
// are of several it is the one of which all are, and of those the first. NOT_FOUND: no format's
// are; INVALID_ARGUMENT: those of several, which it lists, or no format has this name.
[[nodiscard]] StatusOr<const Format*> ChooseFormat(const OwnedFile& folder,
                                                   const std::string& name);

[[nodiscard]] Survey SurveyFolder(const OwnedFile& folder, const Format& format,
                                  const v1::DataSource& source, HashCache* cache);

}  // namespace ringmaster::data
