// The format image_folder: a folder of images for each class, as torchvision and Keras read them.
// Either train/CLASS/... beside one of val/, validation/ and test/, or CLASS/... alone, which has
// no test samples. Images alone, without a folder of a class, have no labels: for predictions.
// Classes are the names of the training folders, sorted by their bytes, and numbered; the samples
// of a class come folder by folder, by (folder, name). What counts is what is named .jpg, .jpeg or
// .png in any case; names that begin with a dot are passed over, and so is what is no image. What
// an image is, its content says.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "common/crc32c.h"
#include "common/data/drawing.h"
#include "common/data/format.h"
#include "common/data/record_index.h"
#include "common/image/codecs.h"
#include "common/image/decode.h"

namespace ringmaster::data {
namespace {

constexpr size_t kMostDepth = 32;
constexpr std::array<const char*, 3> kRead = {".jpg", ".jpeg", ".png"};
// Images all the same: to pass over them silently would lose samples.
constexpr std::array<const char*, 7> kRefused = {".gif",  ".bmp", ".tif", ".tiff",
                                                 ".webp", ".ppm", ".pgm"};
constexpr std::array<const char*, 3> kTestFolders = {"val", "validation", "test"};

bool EndsAs(const std::string& name, std::span<const char* const> endings) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  std::string ending = name.substr(dot);
  std::ranges::transform(ending, ending.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return std::ranges::find(endings, ending) != endings.end();
}

// The images of one class, which lie in `path` and below it, in the order of samples.
Status AddImages(const OwnedFile& folder, const std::string& path, size_t depth,
                 std::vector<std::string>* names) {
  if (depth > kMostDepth) {
    return FailedPrecondition("{}: folders lie deeper than {}: does a link lead back?", path,
                              kMostDepth);
  }
  RING_ASSIGN_OR_RETURN(const FolderEntries entries, ListFolder(folder, path));
  for (const std::string& name : entries.files) {
    if (EndsAs(name, kRefused)) {
      return FailedPrecondition(
          "{}/{} is an image of a kind that is not read: convert it to JPEG or PNG, or remove it",
          path, name);
    }
    if (EndsAs(name, kRead)) names->push_back(path + '/' + name);
  }
  for (const std::string& name : entries.folders) {
    RING_RETURN_IF_ERROR(AddImages(folder, path + '/' + name, depth + 1, names));
  }
  return absl::OkStatus();
}

// Names within folders are sorted already; this puts (folder, name) in order, which is that of
// walks that sort the folders' whole paths.
std::string_view FolderOf(std::string_view name) { return name.substr(0, name.rfind('/')); }

struct Lies {
  std::string train;                // folder of the classes
  std::optional<std::string> test;  // likewise
};

StatusOr<Lies> WhereTheyLie(const OwnedFile& folder) {
  RING_ASSIGN_OR_RETURN(const FolderEntries entries, ListFolder(folder, "."));
  const auto is_there = [&](const std::string& name) {
    return std::ranges::find(entries.folders, name) != entries.folders.end();
  };
  if (!is_there("train")) return Lies{".", std::nullopt};
  std::vector<std::string> tests;
  for (const char* name : kTestFolders) {
    if (is_there(name)) tests.emplace_back(name);
  }
  if (tests.size() > 1) {
    return FailedPrecondition(
        "folders {} are both there: which one holds the test samples is not clear; move one away",
        fmt::join(tests, " and "));
  }
  return Lies{"train", tests.empty() ? std::nullopt : std::optional(tests[0])};
}

// The images of one class, or without one (-1).
Status AddClass(const OwnedFile& folder, const std::string& path, Split split, int32_t label,
                RecordListing* listing) {
  std::vector<std::string> images;
  RING_RETURN_IF_ERROR(AddImages(folder, path, 0, &images));
  if (images.empty()) {
    return FailedPrecondition("{}: the folder of a class without a .jpg, .jpeg or .png", path);
  }
  std::ranges::stable_sort(images, {}, FolderOf);
  for (std::string& image : images) {
    RecordFile file;
    file.name = image.starts_with("./") ? image.substr(2) : std::move(image);
    file.split = split;
    file.label = label;
    listing->files.push_back(std::move(file));
  }
  return absl::OkStatus();
}

bool HasImages(const FolderEntries& entries) {
  return std::ranges::any_of(entries.files,
                             [](const std::string& name) { return EndsAs(name, kRead); });
}

Status AddSplit(const OwnedFile& folder, const std::string& path, Split split,
                RecordListing* listing) {
  RING_ASSIGN_OR_RETURN(const FolderEntries entries, ListFolder(folder, path));
  if (entries.folders.empty()) {
    if (split == Split::kTrain) listing->labelled = !HasImages(entries);
    if (!listing->labelled) return AddClass(folder, path, split, -1, listing);
    return FailedPrecondition("{}: there is no folder in it: expected one for each class", path);
  }
  if (split == Split::kTrain) listing->classes = entries.folders;
  if (entries.folders != listing->classes) {
    for (const std::string& name : entries.folders) {
      if (std::ranges::binary_search(listing->classes, name)) continue;
      return FailedPrecondition("{}/{} is a class that train/ has not", path, name);
    }
    for (const std::string& name : listing->classes) {
      if (std::ranges::binary_search(entries.folders, name)) continue;
      return FailedPrecondition("{}/ has no class {}, which train/ has: labels would shift", path,
                                name);
    }
  }
  for (size_t label = 0; label < listing->classes.size(); ++label) {
    const std::string& name = listing->classes[label];
    const std::string below = path == "." ? name : path + '/' + name;
    RING_RETURN_IF_ERROR(AddClass(folder, below, split, static_cast<int32_t>(label), listing));
  }
  return absl::OkStatus();
}

StatusOr<RecordListing> ListImages(const OwnedFile& folder) {
  RING_ASSIGN_OR_RETURN(const Lies lies, WhereTheyLie(folder));
  RecordListing listing;
  RING_RETURN_IF_ERROR(AddSplit(folder, lies.train, Split::kTrain, &listing));
  if (lies.test) RING_RETURN_IF_ERROR(AddSplit(folder, *lies.test, Split::kTest, &listing));
  return listing;
}

// It, its folder train, or a folder in one of them, has an image.
bool IsThere(const OwnedFile& folder) {
  const auto lies = WhereTheyLie(folder);
  if (!lies.ok()) return true;  // and says so when it is listed
  const auto classes = ListFolder(folder, lies->train);
  if (!classes.ok()) return false;
  return HasImages(*classes) || std::ranges::any_of(classes->folders, [&](const std::string& name) {
           const auto inside = ListFolder(folder, lies->train + '/' + name);
           return inside.ok() && HasImages(*inside);
         });
}

StatusOr<Record> ReadImageRecord(const v1::DataSource& source, const RecordFile& file,
                                 int descriptor) {
  if (file.bytes == 0) return FailedPrecondition("it is empty");
  if (file.bytes > image::kMostBytes) {
    return FailedPrecondition("it has {} bytes: an image may have {}", file.bytes,
                              image::kMostBytes);
  }
  std::vector<uint8_t> bytes(file.bytes);
  RING_RETURN_IF_ERROR(ReadExactly(descriptor, 0, bytes));
  RING_ASSIGN_OR_RETURN(const image::Header header, ReadHeader(source, bytes));
  return RecordOf(bytes, header);
}

// A file is one record.
StatusOr<FoundRecords> FindImage(const v1::DataSource& source, const RecordFile& file,
                                 int descriptor, const std::stop_token& /*stop*/) {
  FoundRecords found;
  const auto record = ReadImageRecord(source, file, descriptor);
  if (record.ok()) {
    found.records.push_back(*record);
  } else if (record.status().code() == absl::StatusCode::kFailedPrecondition) {
    found.bad.emplace_back(0, Message(record.status()));
  } else {
    return record.status();  // a bad disk is no bad image
  }
  return found;
}

// ---- sample data ------------------------------------------------------------------------------

// Named after what is drawn (sample_image.cc).
constexpr std::array<const char*, 10> kDrawnClasses = {
    "horizontal_stripes", "vertical_stripes", "diagonal_stripes", "checkerboard", "rings",
    "dot_lattice",        "line_lattice",     "pluses",           "discs",        "zigzag"};
std::vector<SampleFile> ImageFolderSampleFiles(uint64_t train, uint64_t test, uint64_t seed) {
  std::vector<SampleFile> files;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const uint64_t samples = split == Split::kTrain ? train : test;
    for (uint64_t i = 0; i < samples; ++i) {
      const SampleKey key = SampleOfClass(seed, split, i);
      files.push_back(
          {.name = fmt::format("{}/{}/{:06}.jpg", split == Split::kTrain ? "train" : "val",
                               kDrawnClasses[SampleImageLabel(key)], i),
           .split = split,
           .begin = i,
           .end = i + 1,
           .whole = [key](uint64_t /*seed*/) { return DrawSampleFile(key); }});
    }
  }
  return files;
}

constexpr RecordFormat kImageRecords = {"train/CLASS/*.jpg or CLASS/*.jpg, or *.jpg alone", IsThere,
                                        ListImages, FindImage};

}  // namespace

const Format& ImageFolder() {
  static const Format format = {.name = "image_folder",
                                .classes = 0,
                                .may_be_gzipped = false,
                                .files = {},
                                .layout = nullptr,
                                .sample_files = ImageFolderSampleFiles,
                                .records = &kImageRecords};
  return format;
}

}  // namespace ringmaster::data
