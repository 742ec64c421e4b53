// Loads a SavedModel as TensorFlow Serving's loader does, and runs every signature on inputs made up by type.
//
//   run_saved_model FOLDER ITEM_ID
//
// Unknown dimensions are 2 for the first and 3 for the others. Strings, and integer inputs that hold item ids, are
// ITEM_ID; times and popularity are 1; k is 4, intents 2. Prints one line per output: signature.output, then its values, by
// tabs.
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session.h"
#include "tensorflow/core/public/session_options.h"

namespace {

using tensorflow::Tensor;

bool HoldsItems(const std::string& input) { return input == "history" || input == "exclude" || input == "ids"; }

Tensor MakeInput(const std::string& name, const tensorflow::TensorInfo& info, const std::string& item) {
  tensorflow::TensorShape shape;
  for (int i = 0; i < info.tensor_shape().dim_size(); ++i) {
    const auto size = info.tensor_shape().dim(i).size();
    shape.AddDim(size >= 0 ? size : i == 0 ? 2 : 3);
  }
  Tensor tensor(info.dtype(), shape);
  if (info.dtype() == tensorflow::DT_STRING) {
    tensor.flat<tensorflow::tstring>().setConstant(tensorflow::tstring(item));
  } else if (info.dtype() == tensorflow::DT_FLOAT) {
    tensor.flat<float>().setConstant(1);  // popularity
  } else if (info.dtype() == tensorflow::DT_INT32) {
    tensor.flat<tensorflow::int32>().setConstant(name == "intents" ? 2 : 4);
  } else {
    tensor.flat<int64_t>().setConstant(HoldsItems(name) ? std::atoll(item.c_str()) : 1);
  }
  return tensor;
}

void Print(const std::string& name, const Tensor& tensor) {
  std::cout << name;
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    std::cout << '\t';
    switch (tensor.dtype()) {
      case tensorflow::DT_STRING: std::cout << std::string(tensor.flat<tensorflow::tstring>()(i)); break;
      case tensorflow::DT_FLOAT: std::cout << tensor.flat<float>()(i); break;
      case tensorflow::DT_INT32: std::cout << tensor.flat<tensorflow::int32>()(i); break;
      case tensorflow::DT_BOOL: std::cout << tensor.flat<bool>()(i); break;
      default: std::cout << tensor.flat<int64_t>()(i);
    }
  }
  std::cout << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: run_saved_model FOLDER ITEM_ID\n";
    return 1;
  }
  std::cout.precision(9);
  tensorflow::SavedModelBundle model;
  auto status = tensorflow::LoadSavedModel({}, {}, argv[1], {"serve"}, &model);
  if (!status.ok()) {
    std::cerr << "cannot load: " << status.ToString() << '\n';
    return 2;
  }
  for (const auto& [name, signature] : model.meta_graph_def.signature_def()) {
    if (name.rfind("__", 0) == 0) continue;  // __saved_model_init_op
    std::vector<std::pair<std::string, Tensor>> inputs;
    for (const auto& [input, info] : signature.inputs()) {
      inputs.emplace_back(info.name(), MakeInput(input, info, argv[2]));
    }
    std::vector<std::string> outputs, tensors;
    for (const auto& [output, info] : signature.outputs()) {
      outputs.push_back(output);
      tensors.push_back(info.name());
    }
    std::vector<Tensor> results;
    status = model.session->Run(inputs, tensors, {}, &results);
    if (!status.ok()) {
      std::cerr << "cannot run " << name << ": " << status.ToString() << '\n';
      return 3;
    }
    for (size_t i = 0; i < results.size(); ++i) Print(name + "." + outputs[i], results[i]);
  }
  return 0;
}
