// Images made small once, so that no job has to decode large ones at every step: a dataset of
// images of any format here becomes one that an existing format reads, tfrecord with a JPEG in each
// record, or npy with pixels as they are. Written in parts, which threads of the caller's may write
// in any order: the bytes are a function of the dataset and the options alone. It is another
// dataset than the one that it was made of, with other bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/data/beneath.h"
#include "common/data/dataset.h"
#include "common/data/format.h"
#include "common/status.h"

namespace ringmaster::data {

struct PackOptions {
  // Images whose shorter side is longer are resized to it, bilinear with antialiasing, in Pillow's
  // bytes; others keep their size. At least 1.
  uint32_t short_side = 256;
  // 1 to 100; nothing: pixels, of images that are then all of one size.
  std::optional<int> jpeg_quality = 90;
};

class Packing {
 public:
  // Makes `folder`, which is not there or empty, under another name, until Finish.
  // INVALID_ARGUMENT: the dataset is none of images with one label each, or pixels of several
  // sizes; ALREADY_EXISTS: `folder` holds something, or an earlier packing ended half way.
  [[nodiscard]] static StatusOr<std::unique_ptr<Packing>> Create(
      std::shared_ptr<const Dataset> dataset, const std::string& folder,
      const PackOptions& options);
  // Removes what is not finished.
  ~Packing();
  Packing(const Packing&) = delete;
  Packing& operator=(const Packing&) = delete;

  [[nodiscard]] size_t parts() const { return parts_.size(); }
  // Each once; several threads may write others meanwhile. DATA_LOSS names an image that cannot be
  // read; UNAVAILABLE: the disk.
  [[nodiscard]] Status WritePart(size_t part) const;
  // After all parts: the folder has its name, durably.
  [[nodiscard]] Status Finish();
  // The format that reads it.
  [[nodiscard]] const char* format() const { return options_.jpeg_quality ? "tfrecord" : "npy"; }

 private:
  // Samples [begin, end) of a split: a file of records, or rows of the files of arrays.
  struct Part {
    Split split = Split::kTrain;
    uint64_t begin = 0, end = 0;
    std::string name;
  };
  // Of a split, as they lie in the files.
  struct Arrays {
    OwnedFile images, labels;
    uint64_t images_begin = 0, labels_begin = 0;
  };
  Packing(std::shared_ptr<const Dataset> dataset, std::string folder, const PackOptions& options);
  [[nodiscard]] Status FindColumns();
  [[nodiscard]] Status CheckSizes();
  [[nodiscard]] Status MakeFolder();
  [[nodiscard]] Status MakeArrays(Split split);
  void CutRecords(Split split);
  void CutArrays(Split split);
  [[nodiscard]] image::Placement PlacementOf(Split split, uint64_t sample) const;
  [[nodiscard]] Status ReadSample(Split split, uint64_t sample, std::vector<uint8_t>* pixels,
                                  int32_t* label) const;
  [[nodiscard]] Status WriteRecords(const Part& part) const;
  [[nodiscard]] Status WriteRows(const Part& part) const;

  const std::shared_ptr<const Dataset> dataset_;
  const std::string folder_, partial_;
  const PackOptions options_;
  size_t image_ = 0, label_ = 0;  // of the dataset's columns
  uint32_t channels_ = 0;
  image::Size size_;  // of all images, where they are pixels
  std::vector<Part> parts_;
  Arrays train_, test_;
  bool made_ = false, finished_ = false;  // the partial folder
};

}  // namespace ringmaster::data
