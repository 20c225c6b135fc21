// Datasets of images with a label each, as facts, as a job's graph reads them, and read by sample.
#pragma once

#include <span>

#include "common/data/dataset.h"
#include "common/data/formats/image_formats.h"

namespace ringmaster::testing {

// The columns image and label, as the image formats have them.
inline void SetImages(uint32_t height, uint32_t width, uint32_t channels, uint32_t classes,
                      v1::DatasetFacts* facts) {
  facts->clear_columns();
  v1::StoredColumn& image = *facts->add_columns();
  image.set_name("image");
  image.set_type(v1::ELEMENT_TYPE_UINT8);
  for (const uint32_t extent : {height, width, channels}) image.add_shape(extent);
  image.set_use(v1::COLUMN_USE_INPUT);
  v1::StoredColumn& label = *facts->add_columns();
  label.set_name("label");
  label.set_type(v1::ELEMENT_TYPE_INT32);
  label.set_limit(classes);
  label.set_use(v1::COLUMN_USE_TARGET);
}

// The columns of a graph that reads both, images being of that size.
inline void SetColumns(uint32_t height, uint32_t width, uint32_t channels, v1::ResultSpec* spec) {
  spec->mutable_graph()->clear_columns();
  v1::Column& image = *spec->mutable_graph()->add_columns();
  image.set_name("image");
  image.set_type(v1::ELEMENT_TYPE_FLOAT32);
  for (const uint32_t extent : {height, width, channels}) image.add_shape(extent);
  v1::Column& label = *spec->mutable_graph()->add_columns();
  label.set_name("label");
  label.set_type(v1::ELEMENT_TYPE_INT32);
  label.set_limit(spec->data().columns(1).limit());
}

// Fills `pixels` and returns the label.
inline StatusOr<int32_t> ReadImage(const data::Dataset& dataset, data::Split split, uint64_t sample,
                                   std::span<uint8_t> pixels) {
  RING_RETURN_IF_ERROR(dataset.Read(0, split, sample, std::as_writable_bytes(pixels)));
  int32_t label[1] = {};
  RING_RETURN_IF_ERROR(dataset.Read(1, split, sample, std::as_writable_bytes(std::span(label))));
  return label[0];
}

}  // namespace ringmaster::testing
