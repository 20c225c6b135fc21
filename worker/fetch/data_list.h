// What a source says that a dataset is, and the text in which the cache keeps it. A value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/data_files/file_list.h"
#include "common/sha256.h"
#include "common/status.h"
#include "worker/fetch/piece_source.h"

namespace ringmaster::worker {

static_assert(kPieceBytes == data_files::kPieceBytes);

struct DataList {
  std::string path;  // the job's data.path
  std::vector<SourceFile> files;
  std::string origin;  // hex; of a whole entry: the Id() of the list that it was fetched by

  [[nodiscard]] uint64_t bytes() const;
  // Sorts the files. INVALID_ARGUMENT: a name that no file may have, one that comes twice, or that
  // is a folder of another one; sizes that nobody has; SHA-256 that are not one a piece; no files.
  [[nodiscard]] Status Check();
  // Whether all SHA-256 are known.
  [[nodiscard]] bool hashed() const;
  // Hex SHA-256: of names, sizes and pieces where those are known, so that it is the same wherever
  // the dataset comes from; else of path, names, sizes and versions. Empty when neither can tell
  // two datasets apart.
  [[nodiscard]] std::string Id() const;

  // Ends with its own SHA-256.
  [[nodiscard]] std::string ToText() const;
  // DATA_LOSS: it is damaged, or of another version of the text.
  [[nodiscard]] static StatusOr<DataList> FromText(const std::string& text);
};

}  // namespace ringmaster::worker
