def test_other_data_of_a_model_find_what_was_built():
    y = np.array([0.3, 2.9, 3.4, -0.2])
    with pm.Model() as model:
        pm.Data("y", y)
        mu, z = pm.Normal("mu", 0, 3), pm.Bernoulli("z", 0.3, shape=4)
        pm.Normal("seen", mu * z, 1, observed=model["y"])
    first = set_up(sumout.program(model), None, None)
    pm.set_data({"y": y[::-1]}, model=model)
    second = set_up(sumout.program(model), None, None)
    assert second._first is first
    np.testing.assert_array_equal(second.program.observed["seen"], y[::-1].astype(second.program.data["y"].dtype))
