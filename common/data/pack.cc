#include "common/data/pack.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "common/data/formats/npy.h"
#include "common/data/formats/tf_example.h"
#include "common/files.h"
#include "common/image/codecs.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

// A file of some 30 MB, of which one is held in memory by each thread that writes.
constexpr uint64_t kRecordsInFile = 1024;
constexpr uint64_t kRowsInPart = 256;

constexpr std::array kSplits = {Split::kTrain, Split::kTest};

Status DiskError(const std::string& what, const std::string& path) {
  return Error(absl::StatusCode::kUnavailable, "cannot {} {}: {}", what, path,
               std::strerror(errno));
}

Status WriteAt(const OwnedFile& file, uint64_t offset, std::span<const uint8_t> bytes,
               const std::string& path) {
  return WriteAllAt(file.get(), offset, bytes) ? absl::OkStatus() : DiskError("write to", path);
}

StatusOr<OwnedFile> CreateArray(const std::string& path, Number number,
                                const std::vector<uint64_t>& shape, uint64_t* begin) {
  OwnedFile file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) return DiskError("create", path);
  const std::vector<uint8_t> header = WriteNpyHeader(number, shape);
  *begin = header.size();
  RING_RETURN_IF_ERROR(WriteAt(file, 0, header, path));
  return file;
}

Status Sync(const OwnedFile& file, const std::string& path) {
  if (!file.valid() || fsync(file.get()) == 0) return absl::OkStatus();
  return DiskError("sync", path);
}

std::span<const uint8_t> BytesOf(const std::vector<int32_t>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(int32_t)};
}

}  // namespace

Packing::Packing(std::shared_ptr<const Dataset> dataset, std::string folder,
                 const PackOptions& options)
    : dataset_(std::move(dataset)),
      folder_(std::move(folder)),
      partial_(folder_ + ".partial"),
      options_(options) {}

StatusOr<std::unique_ptr<Packing>> Packing::Create(std::shared_ptr<const Dataset> dataset,
                                                   const std::string& folder,
                                                   const PackOptions& options) {
  fs::path path = fs::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // it was written with a / at its end
  std::unique_ptr<Packing> packing(new Packing(std::move(dataset), path, options));
  RING_RETURN_IF_ERROR(packing->FindColumns());
  RING_RETURN_IF_ERROR(packing->CheckSizes());
  RING_RETURN_IF_ERROR(packing->MakeFolder());
  for (const Split split : kSplits) {
    if (packing->dataset_->samples(split) == 0) continue;
    if (options.jpeg_quality) {
      packing->CutRecords(split);
    } else {
      RING_RETURN_IF_ERROR(packing->MakeArrays(split));
      packing->CutArrays(split);
    }
  }
  return packing;
}

Packing::~Packing() {
  std::error_code error;
  if (made_ && !finished_) fs::remove_all(partial_, error);
}

Status Packing::FindColumns() {
  const auto& columns = dataset_->facts().columns();
  size_t images = 0, labels = 0;
  for (int i = 0; i < columns.size(); ++i) {
    const v1::StoredColumn& column = columns[i];
    if (column.type() == v1::ELEMENT_TYPE_UINT8) {
      image_ = static_cast<size_t>(i);
      channels_ = static_cast<uint32_t>(column.shape(2));
      ++images;
    } else if (column.type() == v1::ELEMENT_TYPE_INT32 && column.shape().empty()) {
      label_ = static_cast<size_t>(i);
      ++labels;
    }
  }
  if (images == 1 && labels == 1 && columns.size() == 2) return absl::OkStatus();
  return InvalidArgument(
      "it has {} columns, of which {} are images and {} whole numbers; what is packed has an image "
      "and its label, and nothing else",
      columns.size(), images, labels);
}

image::Placement Packing::PlacementOf(Split split, uint64_t sample) const {
  image::Placement placement = image::Whole(dataset_->image_size(image_, split, sample));
  const image::Size& size = placement.resized;
  if (std::min(size.height, size.width) <= options_.short_side) return placement;
  placement.resized = image::WithShort(size, options_.short_side);
  placement.kept = {0, 0, placement.resized};
  return placement;
}

Status Packing::CheckSizes() {
  for (const Split split : kSplits) {
    for (uint64_t sample = 0; sample < dataset_->samples(split); ++sample) {
      const image::Size size = PlacementOf(split, sample).resized;
      if (options_.jpeg_quality && std::max(size.height, size.width) > image::kMostJpegSide) {
        return InvalidArgument(
            "{} sample {} becomes {} x {} pixels, of which a JPEG may have {}: leave it out "
            "(`ringctl dataset verify --decode --quarantine` makes the list), or pack with --raw",
            NameOf(split), sample, size.height, size.width, image::kMostJpegSide);
      }
      if (size_.height == 0) size_ = size;
      if (size == size_ || options_.jpeg_quality) continue;
      return InvalidArgument(
          "{} sample {} becomes {} x {} pixels, others {} x {}: pixels are stored of one size "
          "only; leave out --raw",
          NameOf(split), sample, size.height, size.width, size_.height, size_.width);
    }
  }
  return absl::OkStatus();
}

Status Packing::MakeFolder() {
  std::error_code error;
  if (fs::exists(folder_, error) && !fs::is_empty(folder_, error)) {
    return Error(absl::StatusCode::kAlreadyExists,
                 "{} is there and not empty: choose another folder, or remove it", folder_);
  }
  fs::create_directories(fs::path(folder_).parent_path(), error);
  if (!fs::create_directory(partial_, error)) {
    if (error) {
      return Error(absl::StatusCode::kUnavailable, "cannot make {}: {}", partial_, error.message());
    }
    return Error(absl::StatusCode::kAlreadyExists,
                 "{} is there: another packing is under way, or ended half way; then remove it",
                 partial_);
  }
  made_ = true;
  return absl::OkStatus();
}

Status Packing::MakeArrays(Split split) {
  const std::string folder = partial_ + '/' + NameOf(split) + '/';
  std::error_code error;
  fs::create_directory(folder, error);
  const uint64_t samples = dataset_->samples(split);
  Arrays& arrays = split == Split::kTrain ? train_ : test_;
  RING_ASSIGN_OR_RETURN(arrays.images, CreateArray(folder + "image.npy", Number::kUint8,
                                                   {samples, size_.height, size_.width, channels_},
                                                   &arrays.images_begin));
  RING_ASSIGN_OR_RETURN(arrays.labels, CreateArray(folder + "label.npy", Number::kInt32, {samples},
                                                   &arrays.labels_begin));
  return absl::OkStatus();
}

void Packing::CutRecords(Split split) {
  const uint64_t samples = dataset_->samples(split);
  const uint64_t files = (samples + kRecordsInFile - 1) / kRecordsInFile;
  for (uint64_t i = 0; i < files; ++i) {
    parts_.push_back({split, samples * i / files, samples * (i + 1) / files,
                      fmt::format("{}-{:05}-of-{:05}",
                                  split == Split::kTrain ? "train" : "validation", i, files)});
  }
}

void Packing::CutArrays(Split split) {
  const uint64_t samples = dataset_->samples(split);
  for (uint64_t begin = 0; begin < samples; begin += kRowsInPart) {
    parts_.push_back({split, begin, std::min(begin + kRowsInPart, samples), NameOf(split)});
  }
}

Status Packing::ReadSample(Split split, uint64_t sample, std::vector<uint8_t>* pixels,
                           int32_t* label) const {
  const image::Placement placement = PlacementOf(split, sample);
  const image::Size& size = placement.kept.size;
  pixels->resize(size_t{size.height} * size.width * channels_);
  RING_RETURN_IF_ERROR(dataset_->ReadImage(image_, split, sample, placement, *pixels));
  return dataset_->Read(label_, split, sample, std::as_writable_bytes(std::span(label, 1)));
}

Status Packing::WritePart(size_t part) const {
  return options_.jpeg_quality ? WriteRecords(parts_[part]) : WriteRows(parts_[part]);
}

Status Packing::WriteRecords(const Part& part) const {
  const std::vector<std::string> classes = dataset_->classes();
  std::string file;
  std::vector<uint8_t> pixels;
  for (uint64_t sample = part.begin; sample < part.end; ++sample) {
    int32_t label = 0;
    RING_RETURN_IF_ERROR(ReadSample(part.split, sample, &pixels, &label));
    const image::Size size = PlacementOf(part.split, sample).kept.size;
    const auto number = static_cast<size_t>(label);
    file += WriteImageRecord(image::EncodeJpeg(pixels, size, channels_, *options_.jpeg_quality),
                             label, number < classes.size() ? classes[number] : "");
  }
  return WriteDurably(partial_ + '/' + part.name, file, 0644);
}

Status Packing::WriteRows(const Part& part) const {
  const Arrays& arrays = part.split == Split::kTrain ? train_ : test_;
  const size_t image_bytes = size_t{size_.height} * size_.width * channels_;
  std::vector<int32_t> labels(part.end - part.begin);
  std::vector<uint8_t> pixels;
  for (uint64_t sample = part.begin; sample < part.end; ++sample) {
    RING_RETURN_IF_ERROR(ReadSample(part.split, sample, &pixels, &labels[sample - part.begin]));
    RING_RETURN_IF_ERROR(WriteAt(arrays.images, arrays.images_begin + sample * image_bytes, pixels,
                                 partial_ + "/image.npy"));
  }
  return WriteAt(arrays.labels, arrays.labels_begin + part.begin * sizeof(int32_t), BytesOf(labels),
                 partial_ + "/label.npy");
}

Status Packing::Finish() {
  for (const Arrays* const arrays : {&train_, &test_}) {
    RING_RETURN_IF_ERROR(Sync(arrays->images, partial_));
    RING_RETURN_IF_ERROR(Sync(arrays->labels, partial_));
  }
  std::error_code error;
  for (fs::directory_iterator at(partial_, error), end; !error && at != end; at.increment(error)) {
    if (at->is_directory(error)) RING_RETURN_IF_ERROR(SyncFolder(at->path()));
  }
  if (error) {
    return Error(absl::StatusCode::kUnavailable, "cannot list {}: {}", partial_, error.message());
  }
  RING_RETURN_IF_ERROR(SyncFolder(partial_));
  if (std::rename(partial_.c_str(), folder_.c_str()) != 0) {
    return DiskError("give its name to", folder_);
  }
  finished_ = true;
  return SyncFolder(fs::path(folder_).parent_path());
}

}  // namespace ringmaster::data
