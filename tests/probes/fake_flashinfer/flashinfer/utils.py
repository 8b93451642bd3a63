def device_support_pdl(device):
    return device.type == "cuda"
